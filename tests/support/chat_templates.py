"""Chat templates of a dozen families, written in short form after their published formats: what they put around turns,
whether they strip texts, add a system text, refuse turns out of order, or write earlier answers differently."""

from __future__ import annotations

from leadline.text.chat import ChatTemplate

_ALTERNATE = (
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
)

SOURCES = {
    "chatml": (  # Qwen 1, Yi and many others
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "qwen2.5": (  # a default system text
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "qwen3": (  # thinking is taken out of earlier answers
        "{% for m in messages %}{% set text = m.content.split('</think>')[-1].lstrip('\n') if m.role == 'assistant' "
        "else m.content %}<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking "
        "%}<think>\n\n</think>\n\n{% endif %}{% endif %}"
    ),
    "llama2": (  # the system text inside the first turn, texts stripped, plain words for marks
        "{% if messages[0].role == 'system' %}{% set turns = messages[1:] %}{% set system = messages[0].content %}"
        "{% else %}{% set turns = messages %}{% set system = '' %}{% endif %}{% for m in turns %}"
        + _ALTERNATE
        + "{% if m.role == 'user' %}<s>[INST] {% if loop.first and system %}<<SYS>>\n{{ system }}\n<</SYS>>\n\n"
        "{% endif %}"
        "{{ m.content.strip() }} [/INST]{% else %} {{ m.content.strip() }} </s>{% endif %}{% endfor %}"
    ),
    "llama3": (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "mistral": (  # one beginning of text, a space that belongs to the next word
        "{{ bos_token }}{% for m in messages %}"
        + _ALTERNATE
        + "{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
        "{% endfor %}"
    ),
    "gemma": (  # no system role, the assistant is called model
        "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}"
        + _ALTERNATE
        + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
    "phi3": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "zephyr": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "deepseek": (  # nothing between a mark and the text
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<\uff5cUser\uff5c>{{ m.content }}"
        "{% elif m.role == 'assistant' %}<\uff5cAssistant\uff5c>{{ m.content }}{{ eos_token }}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<\uff5cAssistant\uff5c>{% endif %}"
    ),
    "command-r": (
        "{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|>{{ {'user': '<|USER_TOKEN|>', 'assistant': "
        "'<|CHATBOT_TOKEN|>', 'system': '<|SYSTEM_TOKEN|>'}[m.role] }}{{ m.content.strip() }}<|END_OF_TURN_TOKEN|>"
        "{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"
    ),
    "harmony": (  # GPT-OSS: a system text always, a channel for answers
        "<|start|>system<|message|>You are a chat model.\nReasoning: medium<|end|>{% for m in messages %}"
        "{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>{% elif m.role == 'assistant' %}"
        "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
    "granite": (
        "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
    ),
}

TEMPLATES = {
    name: ChatTemplate(source, bos="<s>", eos="</s>", where=f"template {name}") for name, source in SOURCES.items()
}
