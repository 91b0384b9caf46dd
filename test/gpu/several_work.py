"""several_work.py KIND READY STOP: works for some steps with several processes, and prints a hash of the result.

KIND is rank (one of those that torchrun starts: each has half of the rows, and their gradients are averaged over gloo, for
NCCL takes no two ranks on one card), loader (rows come from four processes of a DataLoader), or shared (a tensor on the
card is given to another process). It writes the file READY when the steps begin, and waits for the file STOP before the last.
"""
import hashlib, os, sys, time

kind, ready, stop = sys.argv[1:]
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import nn

STEPS = 300


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
    shared() if kind == "shared" else main()
