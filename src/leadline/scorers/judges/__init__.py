"""Judges: rubrics, the prompt that a judge reads, its reply, the rules that need no judge, and known cases.

Pure functions of records and texts. Asking a judge is `leadline.run.judge`, what the verdicts say is
`leadline.results.judged`.
"""
