import sys, time, torch
sys.path.insert(0, "src"); sys.path.insert(0, "benchmarks/gpu")
import shapes
from leadline.models.hf_reader import Reader, rows_of
from leadline.models.hf_greedy import generate
import leadline.models.hf_attention as A
t=time.time(); m=shapes.model_8b(); torch.cuda.synchronize(); print("model", time.time()-t)
ends=shapes.closings(1,88); cuts=shapes.cuts(shapes.LENGTHS, ends); doc=shapes.document(0)
def sync(): torch.cuda.synchronize(); return time.perf_counter()
for name in ("cudnn","flash"):
    A._TRIED["cuda"] = (A._cudnn,A._flash) if name=="cudnn" else (A._flash,)
    A._kernel.cache_clear()
    for chunk in (8192,16384):
        r=Reader(m,chunk=chunk)
        for rep in range(2 if name=="cudnn" else 1):
            r.forget(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); base=torch.cuda.memory_allocated()
            a=sync(); times=[]
            for _ in r.reading(doc[:max(cuts)],keep=0): times.append(sync())
            b=sync(); peak=torch.cuda.max_memory_allocated()-base-r.store.bytes
            print(name,chunk,"prefill",round(b-a,3),"s extra",peak/2**30,"GiB", "chunks", [round(y-x,3) for x,y in zip([a]+times,times)],flush=True)
            for w in range(2):
                torch.cuda.reset_peak_memory_stats(); a=sync(); rows=rows_of(doc,cuts,ends); out=generate(r,rows,[16]*88,[],batch=88); b=sync()
                print("  probes",round(b-a,3),"extra",(torch.cuda.max_memory_allocated()-base-r.store.bytes)/2**30, "segments", len({x.base for x in rows}),flush=True)
            # one step profile
        if chunk==8192:
            from torch.profiler import profile, ProfilerActivity
            with profile(activities=[ProfilerActivity.CPU,ProfilerActivity.CUDA]) as p:
                generate(r,rows,[3]*88,[],batch=88); torch.cuda.synchronize()
            print(p.key_averages().table(sort_by="cuda_time_total",row_limit=14,max_name_column_width=60))
        r.forget()
