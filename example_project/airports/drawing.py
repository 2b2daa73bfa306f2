"""Pictures, drawn with Pillow from nothing but coordinates."""

from collections.abc import Iterable
from io import BytesIO
from math import cos, hypot, radians
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from airports.models import Airport

NIGHT = (11, 29, 46)
DUSK = (24, 58, 84)
LIGHT = (255, 210, 125)
DIM = (125, 148, 160)
PAPER = (250, 246, 238)
INK = (16, 34, 48)

RANGE_DEGREES = 4.5
"""How far north and south of its airport a postcard reaches."""


def world_map(coordinates: Iterable[tuple[float, float]], width: int = 2000) -> bytes:
    """Return a PNG, transparent but for one dot per airport."""
    scale = width / 360
    image = Image.new("RGBA", (width, round(145 * scale)), (*LIGHT, 0))
    draw = ImageDraw.Draw(image)
    for latitude, longitude in coordinates:
        x, y = (longitude + 180) * scale, (85 - latitude) * scale
        draw.ellipse((x - 1.3, y - 1.3, x + 1.3, y + 1.3), fill=(*LIGHT, 170))
    return _encoded(image, "PNG")


def postcard(airport: Airport, neighbours: Iterable[Airport]) -> bytes:
    """Return a JPEG of 1280 by 860 pixels: the airport, its neighbours, and its name below."""
    width, height, caption = 1280, 860, 180
    view = height - caption
    image = Image.new("RGB", (width, height), PAPER)
    image.paste(_sky(width, view), (0, 0))
    draw = ImageDraw.Draw(image)

    scale = view / (2 * RANGE_DEGREES)
    shrink = cos(radians(airport.latitude))  # meridians meet at the poles

    def position(other: Airport) -> tuple[float, float]:
        x = width / 2 + (other.longitude - airport.longitude) * shrink * scale
        return x, view / 2 - (other.latitude - airport.latitude) * scale

    for distance in range(1, 5):
        radius = distance * view / 5.2
        box = (width / 2 - radius, view / 2 - radius, width / 2 + radius, view / 2 + radius)
        draw.ellipse(box, outline=(46, 84, 110))

    labelled: list[tuple[float, float]] = [(width / 2, view / 2)]
    small = _font(19)
    for other in neighbours:
        x, y = position(other)
        if not (8 < x < width - 8 and 8 < y < view - 8):
            continue
        size = 3.2 if other.iata else 1.6
        draw.ellipse((x - size, y - size, x + size, y + size), fill=LIGHT if other.iata else DIM)
        if other.iata and x < width - 60 and all(hypot(x - a, y - b) > 62 for a, b in labelled):
            labelled.append((x, y))
            draw.text((x + 8, y), other.iata, font=small, fill=(196, 208, 214), anchor="lm")

    x, y = width / 2, view / 2
    draw.ellipse((x - 22, y - 22, x + 22, y + 22), outline=LIGHT, width=4)
    draw.ellipse((x - 8, y - 8, x + 8, y + 8), fill=(255, 255, 255))

    draw.text((48, view + 44), _shortened(airport.name, 52), font=_font(42), fill=INK)
    draw.text((48, view + 106), airport.place, font=_font(26), fill=(96, 108, 116))
    draw.text((width - 48, view + 38), airport.code, font=_font(96), fill=(196, 84, 46), anchor="ra")
    return _encoded(image, "JPEG", quality=86)


def resized(original: Path, width: int) -> bytes:
    with Image.open(original) as image:
        height = round(image.height * width / image.width)
        return _encoded(image.resize((width, height), Image.Resampling.LANCZOS), "JPEG", quality=84)


def _sky(width: int, height: int) -> Image.Image:
    gradient = Image.linear_gradient("L").resize((width, height))
    return Image.composite(
        Image.new("RGB", (width, height), DUSK), Image.new("RGB", (width, height), NIGHT), gradient
    )


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)  # the one that Pillow brings along


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _encoded(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
