import sys, time, torch
sys.path.insert(0, "benchmarks/gpu")
import shapes
from leadline.models.hf_reader import Reader, rows_of
from leadline.models.hf_greedy import generate
m=shapes.model_8b()
ends=shapes.closings(1,88); cuts=shapes.cuts(shapes.LENGTHS, ends); doc=shapes.document(0)
def sync(): torch.cuda.synchronize(); return time.perf_counter()
r=Reader(m,chunk=8192)
a=sync(); r.read(doc[:max(cuts)]); b=sync(); print("prefill",b-a)
rows=rows_of(doc,cuts,ends)
outs=[]
for rec in (False,True,True):
    r.records=rec
    torch.cuda.reset_peak_memory_stats(); base=torch.cuda.memory_allocated()
    a=sync(); out=generate(r,rows,[16]*88,[],batch=88); b=sync(); outs.append(out)
    print("  probes",rec,r.records,round(b-a,3),"extra",(torch.cuda.max_memory_allocated()-base)/2**30, flush=True)
print("same", [sum(outs[0][i].ids==o[i].ids for i in range(88)) for o in outs])
a=sync(); generate(r,rows,[1]*88,[],batch=88); b=sync(); print("closings only", b-a)
a=sync(); generate(r,rows,[64]*88,[],batch=88); b=sync(); print("64 tokens", b-a)
one=[x for x in rows if x.base>130000][:1]
a=sync(); generate(r,one,[16]*88,[],batch=88); b=sync(); print("one row 16", b-a)
from torch.profiler import profile, ProfilerActivity
r.store.crop(65536); r.ids=r.ids[:65536]
r.read(doc[:65536+8192])
r.store.crop(65536); r.ids=r.ids[:65536]
with profile(activities=[ProfilerActivity.CUDA]) as p:
    r.read(doc[:65536+8192]); torch.cuda.synchronize()
print(p.key_averages().table(sort_by="self_cuda_time_total",row_limit=24,max_name_column_width=110))
