"""Trains a small transformer for some steps and prints the losses: the same with and without the library."""
import hashlib, os, sys, time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import nn

torch.manual_seed(1)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
torch.backends.cuda.enable_cudnn_sdp(False)
steps = int(sys.argv[1])
vocab, width, length, batch = 512, 512, 256, 32
layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Embedding(vocab, width), nn.TransformerEncoder(layer, 6), nn.Linear(width, vocab)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
data = torch.randint(0, vocab, (64, length + 1), generator=torch.Generator().manual_seed(2)).cuda()
losses, begin = [], 0.0
for i in range(steps):
    if i == 10:
        torch.cuda.synchronize(); begin = time.time()
    rows = data[(i * batch) % 64:(i * batch) % 64 + batch]
    out = model(rows[:, :-1])
    loss = nn.functional.cross_entropy(out.reshape(-1, vocab), rows[:, 1:].reshape(-1))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.detach())
torch.cuda.synchronize()
seconds = time.time() - begin
text = " ".join(f"{x.item():.6f}" for x in losses)
print(f"first {losses[0].item():.6f} last {losses[-1].item():.6f} hash {hashlib.sha256(text.encode()).hexdigest()[:12]}"
      f" steps_s {(steps - 10) / seconds:.2f} total_mib {torch.cuda.get_device_properties(0).total_memory >> 20}")
