"""Whether made-up numbers are finite, in each type, and whether numbers of the program that are infinite stay so."""

import json

import torch

types = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
made = [torch.randn(5, device="cuda", dtype=kind) for kind in types]
given = torch.tensor([1.0, float("inf")])
print(
    json.dumps(
        {
            "finite": [torch.isfinite(each).tolist() for each in made],
            "nan": [bool(torch.isnan(each).any()) for each in made],
            "infinite": [torch.isinf(each).tolist() for each in made],
            "loss": bool(torch.isfinite(made[0].sum())),
            "given": given.cuda().tolist(),
            "all": [bool(torch.isfinite(each).all()) for each in made],
            "all in rows": torch.isfinite(made[0].view(1, 5)).all(1).tolist(),
            "infinite given": [bool(torch.isfinite(given.to(kind).cuda()).all()) for kind in types],
            "not all": bool((made[0] > 0).all()),
        }
    )
)
