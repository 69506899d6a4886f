"""Terminal sessions as SVG for README and documentation: `make pictures` runs the commands and draws their output."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[2]
COLUMNS = 100
PROGRAM = str(Path(sys.executable).parent / "kai-solver")

SESSION = (
    ("compare", "instances/monday-morning.yaml", "--quiet"),
    ("explain", "instances/monday-morning.yaml", "flagship", "--quiet"),
)
SHOWN = 10
"""Lines of each command after the first one."""
CONTROLLER = ("controller", "--embedded", "--for", "24")

_FONT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <title>{title}</title>
    <style>
    .{unique_id}-matrix {{
        font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""
"""rich's own format without its fonts from the network."""

_DARK = "#181d24 #e57373 #81c784 #ffd54f #64b5f6 #ba68c8 #4dd0e1 #dfe4ea"
_BRIGHT = "#6e7781 #ff8a80 #a5d6a7 #ffe082 #90caf9 #ce93d8 #80deea #ffffff"


def _colours(text: str) -> list[tuple[int, int, int]]:
    return [(int(word[1:3], 16), int(word[3:5], 16), int(word[5:7], 16)) for word in text.split()]


_THEME = TerminalTheme((24, 29, 36), (223, 228, 234), _colours(_DARK), _colours(_BRIGHT))


def main() -> None:
    """Draw both sessions into docs/images."""
    screen = _recorder()
    for number, words in enumerate(SESSION):
        lines = _printed(words).splitlines()
        shown = lines if number == 0 else lines[:SHOWN]
        _prompt(screen, words, first=number == 0)
        screen.print(Text.from_ansi("\n".join(shown)), soft_wrap=True)
        if len(shown) < len(lines):
            screen.print("...", style="dim")
    _save(screen, "session", "kai-solver beside greedy alone")
    screen = _recorder()
    _prompt(screen, CONTROLLER, first=True)
    screen.print(Text.from_ansi(_live(CONTROLLER)), soft_wrap=True)
    _save(screen, "controller", "The controller at work on a cluster in memory")


def _recorder() -> Console:
    return Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w"), markup=False, highlight=False)


def _prompt(screen: Console, words: tuple[str, ...], *, first: bool) -> None:
    said = " ".join(word for word in words if word != "--quiet")
    screen.print(Text.assemble(("" if first else "\n"), ("$ ", "bold green"), (f"kai-solver {said}", "bold")))


def _environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color", "FORCE_COLOR": "1"}


def _printed(words: tuple[str, ...]) -> str:
    done = subprocess.run(
        [PROGRAM, *words], cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def _live(words: tuple[str, ...]) -> str:
    """What a terminal shows at the end: the lines above, and the last picture of the tables that renew themselves."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([PROGRAM, *words], cwd=ROOT, env=_environment(), stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        text = _read(ours, child)
    os.close(ours)
    text = text.replace("\r", "")
    frames = re.split(r"(?:\x1b\[2K|\x1b\[1A)+", text)
    pictures = [frame for frame in frames if "Queues" in frame]
    above = [line for frame in frames for line in frame.partition("\x1b[3mQueues")[0].split("\n")]
    story = [
        line
        for line in above
        if re.match(r"(A cluster|\(quota| *\(|cycle \d+,|  \S+ (gets|waits|gives|goes|is))", line)
    ]
    return "\n".join([*story[:2], "...", *story[-12:], re.sub(r"\x1b\[\?25[lh]", "", pictures[-1]).rstrip()])


def _read(ours: int, child: "subprocess.Popen[bytes]") -> str:
    found, end = b"", time.monotonic() + 90
    while time.monotonic() < end:
        ready, _, _ = select.select([ours], [], [], 0.5)
        try:
            part = os.read(ours, 65536) if ready else b""
        except OSError:  # a pty ends with an error when its last writer is gone
            break
        found += part
        if not part and child.poll() is not None:
            break
    return found.decode()


def _save(screen: Console, name: str, title: str) -> None:
    file = ROOT / "docs" / "images" / f"{name}.svg"
    screen.save_svg(str(file), title=title, theme=_THEME, code_format=_FONT.replace("{title}", title), unique_id=name)


if __name__ == "__main__":
    main()
