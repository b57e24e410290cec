"""Record what Pillow and torchvision make of small images, for yoke/train/image to equal.

    python record_images.py images

Writes the images into the folder and the results as images.safetensors beside them: "decode/FILE" is the RGB image,
"resize/LEFT,TOP,WIDTH,HEIGHT/WIDTHxHEIGHT" a part of photo.png that is cropped and resized, "centre/SIDE/WIDTHxHEIGHT"
its Resize and CenterCrop, "OPERATION/FACTOR" an operation of ColorJitter on it, and "random_crop/SIZE" the areas and
ratios of RandomResizedCrop.
"""
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from safetensors.numpy import save_file
from torchvision import transforms
from torchvision.transforms import functional

W, H = 61, 45
folder = Path(sys.argv[1])
rng = np.random.default_rng(0)


def photo():
    """Smooth colours, edges and some noise."""
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    image = small.resize((W, H), Image.BICUBIC)
    draw = ImageDraw.Draw(image)
    draw.ellipse((12, 6, 36, 30), fill=(200, 30, 60), outline=(255, 255, 255))
    draw.rectangle((33, 21, 57, 42), outline=(0, 0, 0), width=2)
    noise = rng.normal(0, 6, (H, W, 3))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def write_png(path, pixels, depth, color, interlaced=False):
    """Types that Pillow does not write. pixels: [H, W, channels], big-endian for 16 bits."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        for row in pixels[y::dy, x::dx]:
            if row.size:
                raw = row.tobytes()
                if depth < 8:
                    bits = "".join(f"{v:0{depth}b}" for v in row.reshape(-1))
                    bits += "0" * (-len(bits) % 8)
                    raw = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
                data += b"\0" + raw

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    h, w = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", w, h, depth, color, 0, 0, int(interlaced))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


image = photo()
alpha = Image.fromarray(rng.integers(0, 256, (H, W), dtype=np.uint8))
rgba = image.copy()
rgba.putalpha(alpha)
image.save(folder / "photo.png")
rgba.save(folder / "rgba.png")
image.convert("L").save(folder / "grey.png")
rgba.convert("LA").save(folder / "grey_alpha.png")
image.convert("1").save(folder / "one_bit.png")
image.quantize(200).save(folder / "palette.png", transparency=3)
image.quantize(13).save(folder / "palette4.png", bits=4)
a = np.asarray(image)
write_png(folder / "grey4.png", a[..., :1] >> 4, 4, 0)
write_png(folder / "rgb16.png", (a.astype(">u2") << 8) + rng.integers(0, 256, a.shape).astype(">u2"), 16, 2)
write_png(folder / "interlaced.png", a, 8, 2, interlaced=True)
write_png(folder / "interlaced_rgba.png", np.asarray(rgba), 8, 6, interlaced=True)

image.save(folder / "420.jpg", quality=90, subsampling="4:2:0")
image.save(folder / "422.jpg", quality=80, subsampling="4:2:2")
image.save(folder / "444.jpg", quality=95, subsampling="4:4:4")
image.save(folder / "progressive.jpg", quality=85, progressive=True)
image.save(folder / "restarts.jpg", quality=85, restart_marker_rows=1)
image.save(folder / "rgb.jpg", quality=85, keep_rgb=True)
image.convert("L").save(folder / "grey.jpg", quality=85)
image.convert("CMYK").save(folder / "cmyk.jpg", quality=90)
exif = Image.Exif()
exif[0x0112] = 6  # EXIF orientation 6: viewers rotate the image by 90 degrees
image.save(folder / "turned.jpg", quality=85, exif=exif)

recorded = {}
for path in sorted(folder.glob("*.*g")):
    recorded[f"decode/{path.name}"] = np.asarray(Image.open(path).convert("RGB"))

for box in ((0, 0, W, H), (13, 7, 40, 30), (50, 0, 11, 45), (0, 44, 61, 1), (30, 20, 1, 1)):
    for size in ((32, 32), (64, 48), (7, 5), (100, 20), (1, 1)):
        left, top, w, h = box
        part = image.crop((left, top, left + w, top + h)).resize(size, Image.BILINEAR)
        recorded[f"resize/{left},{top},{w},{h}/{size[0]}x{size[1]}"] = np.asarray(part)
for side, (w, h) in ((32, (28, 28)), (45, (45, 45)), (45, (40, 31)), (64, (64, 33)), (70, (69, 70))):
    both = transforms.Compose([transforms.Resize(side), transforms.CenterCrop((h, w))])
    recorded[f"centre/{side}/{w}x{h}"] = np.asarray(both(image))

for factor in (0.0, 0.4, 0.75, 1.0, 1.3, 2.5):
    recorded[f"brightness/{factor}"] = np.asarray(functional.adjust_brightness(image, factor))
    recorded[f"contrast/{factor}"] = np.asarray(functional.adjust_contrast(image, factor))
    recorded[f"saturation/{factor}"] = np.asarray(functional.adjust_saturation(image, factor))
for factor in (-0.5, -0.1, 0.0, 0.05, 0.5):
    recorded[f"hue/{factor}"] = np.asarray(functional.adjust_hue(image, factor))

torch.manual_seed(0)
for w, h in ((500, 375), (60, 300)):
    crops = []
    for _ in range(20000):
        top, left, height, width = transforms.RandomResizedCrop.get_params(
            torch.empty(3, h, w), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
        crops.append((left, top, width, height))
    crops = np.array(crops, dtype=np.float64)
    recorded[f"random_crop/{w}x{h}"] = np.stack([crops.mean(0), crops.std(0)])

save_file(recorded, folder.with_suffix(".safetensors"))
