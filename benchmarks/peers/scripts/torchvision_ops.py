"""Some torchvision wheels do not load beside a CPU build of torch, for want of operators that nobody here calls."""

import torch

_library = torch.library.Library("torchvision", "DEF")
try:
    _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
except RuntimeError:  # they are there
    pass
