"""several_work.py KIND READY STOP: works for some steps with several processes, and prints a hash of the result.

KIND is rank (one of those that torchrun starts: each has half of the rows, and their gradients are averaged over gloo, for
NCCL takes no two ranks on one card), loader (rows come from four processes of a DataLoader), shared (a tensor on the card
is given to another process), or given or segments (tensors on the card are given to another process, and both write to
them at once, each to a half, and then to the other; with PyTorch's usual allocator, and with expandable segments). It writes the file READY when the steps begin, and waits for the file STOP before the last.
"""
import hashlib, os, sys, time

kind, ready, stop = sys.argv[1:]
if kind == "segments":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import nn

STEPS = 300
GIVEN_STEPS = 600


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * 16

    def __getitem__(self, i):
        return torch.randn(1024, generator=torch.Generator().manual_seed(i))


def child(queue, back):
    x = queue.get()
    back.put(float(x.sum()))


def shared():
    context = torch.multiprocessing.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    p = context.Process(target=child, args=(queue, back))
    p.start()
    queue.put(torch.ones(1 << 20, device="cuda"))
    print("sum", back.get(timeout=60))
    p.join()


def one_step(tensors, i, half, own):
    """Writes to one half of each tensor what was in all of it before, and some of what is this process's alone."""
    for t in tensors:
        mine = t.view(2, -1)[(i + half) % 2]
        mine.mul_(0.75).add_(own[: mine.numel()], alpha=0.25)
    own.copy_((own.view(4096, -1) @ own.view(4096, -1).T)[0, 0].tanh() * 1e-3 + own * 0.999 + half * 1e-3)
    torch.cuda.synchronize()


def other(queue, pipe):
    tensors = queue.get()
    own = torch.linspace(-1, 1, 1 << 24, device="cuda")
    pipe.send("has them")
    for i in range(GIVEN_STEPS):
        pipe.recv()
        one_step(tensors, i, 1, own)
        pipe.send(i)
    pipe.recv()
    pipe.send(digest([own]))
    del tensors
    pipe.recv()


def digest(tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().numpy().tobytes())
    return h.hexdigest()[:16]


def given():
    context = torch.multiprocessing.get_context("spawn")
    queue, (pipe, its) = context.SimpleQueue(), context.Pipe()
    p = context.Process(target=other, args=(queue, its))
    p.start()
    # of many sizes: the small ones lie in one segment of 2 MiB, the large one in several
    tensors = [torch.linspace(0, 1, n, device="cuda") for n in (1 << 10, 1 << 14, 1 << 20, 1 << 24, 1 << 25)]
    own = torch.linspace(1, -1, 1 << 24, device="cuda")
    torch.cuda.synchronize()
    queue.put(tensors)
    for i in range(GIVEN_STEPS):
        pipe.recv()
        if i == 10:
            open(ready, "w").close()
        while i == GIVEN_STEPS - 1 and not os.path.exists(stop):
            time.sleep(0.01)
        pipe.send(i)
        one_step(tensors, i, 0, own)
        time.sleep(0.01)
    pipe.recv()
    pipe.send("end")
    print("hash", digest(tensors), digest([own]), pipe.recv(), flush=True)
    pipe.send("end")
    p.join()


def main():
    rank, ranks = 0, 1
    if kind == "rank":
        torch.distributed.init_process_group("gloo")
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    if kind == "loader":
        batches = iter(torch.utils.data.DataLoader(Rows(), batch_size=16, num_workers=4, pin_memory=True))
    else:
        rows = Rows()
        batches = (torch.stack([rows[i * 16 + j] for j in range(rank * 8, rank * 8 + 8)]) for i in range(STEPS))
    for i, batch in enumerate(batches):
        if i == 10 and rank == 0:
            open(ready, "w").close()
        while i == STEPS - 1 and not os.path.exists(stop):
            time.sleep(0.01)
        x = batch.cuda(non_blocking=True)
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        for p in model.parameters() if ranks > 1 else ():
            g = p.grad.cpu()
            torch.distributed.all_reduce(g)
            p.grad.copy_(g / ranks)
        optimizer.step()
    h = hashlib.sha256()
    for p in model.parameters():
        h.update(p.detach().cpu().numpy().tobytes())
    if rank == 0:
        print("hash", h.hexdigest()[:16], flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    {"shared": shared, "given": given, "segments": given}.get(kind, main)()
