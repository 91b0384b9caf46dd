"""work.py KIND NAME STEPS [GIB]: a job's work for test/gpu/cluster; writes a line of JSON for each thing worth knowing.

Kinds: torch trains a small transformer; serve does a little every 10 ms, and says how long that took; driver launches kernels by the driver's own functions, so that the tests' driver
does as well; notebook (and driver-notebook) works a cell each time a file cell.N comes, and says how long that took. With GIB so much more memory is filled, and changed with every step. A hash at the end says whether the
result is the same as another run's, bit for bit. With "30s" as STEPS it works until 30 seconds after its start.
"""
import ctypes, hashlib, json, os, sys, time

kind, name, steps = sys.argv[1:4]
gib = float(sys.argv[4]) if len(sys.argv) > 4 else 0
began = time.time()
last = float("inf") if steps.endswith("s") else int(steps)
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def say(**what):
    print(json.dumps(dict(what, t=time.time(), name=name)), flush=True)


def of_torch():
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    for off in (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.enable_cudnn_sdp):
        off(False)
    vocab, width, length, batch = 512, 512, 256, 32
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(vocab, width), nn.TransformerEncoder(layer, 6), nn.Linear(width, vocab)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    data = torch.randint(0, vocab, (64, length + 1), generator=torch.Generator().manual_seed(2)).cuda()
    more = [torch.full((1 << 28,), i, dtype=torch.int32, device="cuda") for i in range(int(gib))]
    losses = []

    def step(i):
        rows = data[(i * batch) % 64:(i * batch) % 64 + batch]
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).reshape(-1, vocab), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if more:
            more[i % len(more)].add_(1)
        if i % 5 == 4:
            torch.cuda.synchronize()

    def result():
        torch.cuda.synchronize()
        text = " ".join(f"{x.item():.6f}" for x in losses) + "".join(f" {x[::1 << 20].sum().item()}" for x in more)
        return text, f"{losses[-1].item():.6f}"
    return step, result, torch.cuda.get_device_properties(0).total_memory >> 20


def serve():
    """A server: a burst of products, a pause, and how long each burst took until its end."""
    import torch

    torch.manual_seed(1)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) / 64
    took = []

    def step(i):
        time.sleep(0.01)
        at = time.perf_counter()
        y = x
        for _ in range(4):
            y = y @ x
        torch.cuda.synchronize()
        if i >= 50:
            took.append((time.perf_counter() - at) * 1000)

    def result():
        took.sort()
        say(event="served", n=len(took), p50=took[len(took) // 2], p99=took[int(len(took) * 0.99)], most=took[-1])
        return "", "-"
    return step, result, torch.cuda.get_device_properties(0).total_memory >> 20


def of_driver():
    cuda = ctypes.CDLL("libcuda.so.1")

    def call(function, *args):
        code = getattr(cuda, function)(*args)
        if code:
            say(error=f"{function} answers {code}")
            sys.exit(1)

    class Kernel(ctypes.Structure):  # as the tests' driver knows it: how long it takes
        _fields_ = [("ns", ctypes.c_longlong), ("body", ctypes.c_void_p)]
    kernel, context, device, total, at = Kernel(2_000_000, None), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_ulonglong()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    if gib:
        call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(int(gib * (1 << 30))))

    def step(_):
        for _ in range(5):
            call("cuLaunchKernel", ctypes.byref(kernel), 1, 1, 1, 1, 1, 1, 0, None, None, None)
        call("cuCtxSynchronize")
    return step, lambda: (str(last), "-"), total.value >> 20


def notebook(made):
    """Cells, each when its file is there. A cell adds to all memory that was filled, and looks at it."""
    step, result, total = made
    say(event="first", total=total)
    for i in range(1, int(steps) + 1):
        while not os.path.exists(f"cell.{i}"):
            time.sleep(0.02)
        at = time.perf_counter()
        step(i)
        say(event=f"cell {i}", took=time.perf_counter() - at)
    say(event="end", wrong=result())


def torch_cells():
    import torch

    held = [torch.full((1 << 28,), i, dtype=torch.int32, device="cuda") for i in range(max(int(gib), 1))]
    torch.cuda.synchronize()

    def step(i):
        for x in held:
            x.add_(1)
        torch.cuda.synchronize()
    return step, lambda: sum(int((x != i + int(steps)).sum()) for i, x in enumerate(held)), torch.cuda.get_device_properties(0).total_memory >> 20


def driver_cells():
    step, _, total = of_driver()
    return step, lambda: 0, total


if kind.endswith("notebook"):
    say(event="start", uid=os.getuid(), cwd=os.getcwd())
    notebook(driver_cells() if kind == "driver-notebook" else torch_cells())
    sys.exit()
say(event="start", uid=os.getuid(), cwd=os.getcwd())
step, result, total = {"torch": of_torch, "serve": serve, "driver": of_driver}[kind]()
step(0)
say(event="first", total=total)
begin = said = time.time()
i = 1
while i < last:
    step(i)
    i += 1
    if time.time() - said > 0.2:
        said = time.time()
        say(event="step", step=i, rate=(i - 1) / (said - begin))
    if last == float("inf") and time.time() - began > float(steps[:-1]):
        break
text, loss = result()
say(event="end", steps=i, seconds=time.time() - begin, loss=loss, hash=hashlib.sha256(text.encode()).hexdigest()[:12])
