# SPDX-License-Identifier: Apache-2.0
"""Would RE2 compile it? Envoy's regular expressions are RE2's, which lack constructs of Perl's.

The grammar is that of https://github.com/google/re2/wiki/Syntax. Some programs have RE2 read the
pattern as UTF-8, newer Envoys as bytes: a pattern must do for both. Not checked are the names of
Unicode scripts (only their form) and the size of the compiled program.
"""

from __future__ import annotations

import dataclasses
import re

MAX_REPEAT = 1000
"""Highest count of ``{n,m}``, nested ones multiplied: RE2's own limit."""

_MAX_BYTE = 0xFF
_REPEAT = re.compile(r"\{(0|[1-9][0-9]{0,7})(?:(,)(0|[1-9][0-9]{0,7})?)?\}")
_NAMED = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
_FLAGS = re.compile(r"\(\?(?:[imsU]*|[imsU]*-[imsU]+)([:)])")
_ESCAPE = re.compile(
    r"\\(?:[1-7][0-7]{1,2}|0[0-7]{0,2}|x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[afnrtv_]"
    r"|[^\w\u0080-\U0010ffff])",
    re.DOTALL,
)
_GROUP = re.compile(r"\\[pP](?:\{\^?([^{}]*)\}|(.))", re.DOTALL)
_CATEGORY = re.compile(r"Any|C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_SCRIPT = re.compile(r"[A-Z][a-z]{2,}(?:_[A-Z][a-z]+)*")
_POSIX = re.compile(
    r"alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit"
)
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


class _WrongError(Exception):
    pass


@dataclasses.dataclass(slots=True)
class _Frame:
    """A group that is open."""

    repeats: int = 1
    """Highest product of nested repeats so far."""
    operand: int = 0
    """The same of what stands just before, which a repeat would apply to; 0 when nothing does."""

    def add(self, repeats: int = 1) -> None:
        self.operand = repeats
        self.repeats = max(self.repeats, repeats)


def problem(pattern: str) -> str | None:
    """Why RE2 would not compile a pattern; None when it would."""
    try:
        _Scanner(pattern).scan()
    except _WrongError as wrong:
        return str(wrong)
    return None


def groups(pattern: str) -> int:
    """How many capturing groups a pattern has; 0 for one that RE2 would not compile."""
    scanner = _Scanner(pattern)
    try:
        scanner.scan()
    except _WrongError:
        return 0
    return scanner.groups


class _Scanner:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._open = [_Frame()]
        self._names: set[str] = set()
        self.groups = 0
        self._repeated = False
        """What stands just before is a repeat, and cannot be repeated again."""

    def scan(self) -> None:
        while self._at < len(self._text):
            repeated, self._repeated = self._repeated, False
            match self._text[self._at]:
                case "*" | "+" | "?":
                    self._repeat(1, 1, 0, stacked=repeated)
                case "{":
                    self._braces(stacked=repeated)
                case "(":
                    self._group()
                case ")":
                    self._close()
                case "|":
                    self._at += 1
                    self._open[-1].operand = 0
                case "[":
                    self._class()
                    self._open[-1].add()
                case "\\":
                    self._escape()
                case _:
                    self._at += 1
                    self._open[-1].add()
        if len(self._open) > 1:
            raise _WrongError("a ( is not closed")

    def _braces(self, *, stacked: bool) -> None:
        match = _REPEAT.match(self._text, self._at)
        if match is None:  # a brace like any other character
            self._at += 1
            self._open[-1].add()
            return
        low = int(match.group(1))
        high = low if match.group(2) is None else int(match.group(3) or -1)
        if match.group(3) == "0":
            high = 0
        if max(low, high) > MAX_REPEAT or 0 <= high < low:
            raise _WrongError(f"{match.group()} repeats too often; at most {MAX_REPEAT} times")
        self._repeat(len(match.group()), max(low if high < 0 else high, 1), low, stacked=stacked)

    def _repeat(self, length: int, times: int, low: int, *, stacked: bool) -> None:
        operator = self._text[self._at : self._at + length]
        self._at += length
        if self._text.startswith("?", self._at):
            self._at += 1
        if stacked:
            raise _WrongError(f"{operator} repeats a repeat")
        frame = self._open[-1]
        if not frame.operand:
            raise _WrongError(f"{operator} has nothing to repeat")
        product = frame.operand * times
        if max(low, times) >= 2 and product > MAX_REPEAT:
            raise _WrongError(f"{operator} repeats too often; nested at most {MAX_REPEAT} times")
        frame.add(product)
        self._repeated = True

    def _group(self) -> None:
        if not self._text.startswith("(?", self._at):
            self._at += 1
            self.groups += 1
            self._open.append(_Frame())
        elif named := _NAMED.match(self._text, self._at):
            if named.group(1) in self._names:
                raise _WrongError(f"the group {named.group(1)} is there twice")
            self._names.add(named.group(1))
            self.groups += 1
            self._at = named.end()
            self._open.append(_Frame())
        elif flags := _FLAGS.match(self._text, self._at):
            self._at = flags.end()
            if flags.group(1) == ":":
                self._open.append(_Frame())
        else:
            construct = self._text[self._at : self._at + 4]
            raise _WrongError(f"{construct} is no construct of RE2, which has no lookaround")

    def _close(self) -> None:
        if len(self._open) == 1:
            raise _WrongError("a ) closes nothing")
        self._at += 1
        closed = self._open.pop()
        self._open[-1].add(closed.repeats)

    def _escape(self) -> None:
        after = self._text[self._at + 1 : self._at + 2]
        if after == "Q":
            self._quoted()
            return
        if after and after in "AzbBCdDsSwW":
            self._at += 2
        elif after and after in "pP":
            self._unicode_group()
        else:
            self._character()
        self._open[-1].add()

    def _quoted(self) -> None:
        end = self._text.find("\\E", self._at + 2)
        stop = len(self._text) if end < 0 else end
        if stop > self._at + 2:
            self._open[-1].add()
        self._at = len(self._text) if end < 0 else end + 2

    def _unicode_group(self) -> None:
        match = _GROUP.match(self._text, self._at)
        name = (match.group(1) if match.group(2) is None else match.group(2)) if match else ""
        if match is None or not (_CATEGORY.fullmatch(name) or _SCRIPT.fullmatch(name)):
            raise _WrongError(f"{self._text[self._at : self._at + 12]} names no Unicode group")
        self._at = match.end()

    def _character(self) -> int:
        """Read one character, written as it is or escaped, and give its code point."""
        if self._text[self._at] != "\\":
            self._at += 1
            return ord(self._text[self._at - 1])
        match = _ESCAPE.match(self._text, self._at)
        if match is None:
            raise _WrongError(self._bad_escape())
        self._at = match.end()
        body = match.group()[1:]
        if body[0] in _CONTROL:
            return _CONTROL[body[0]]
        if body[0] == "x":
            code = int(body[1:].strip("{}"), 16)
            if code > _MAX_BYTE:
                raise _WrongError(f"\\{body} is no byte; write the character itself")
            return code
        return int(body, 8) if body[0].isdigit() else ord(body)

    def _bad_escape(self) -> str:
        escape = self._text[self._at : self._at + 2]
        if len(escape) < 2:
            return "ends with a backslash"
        reference = "; RE2 has no back-references" if escape[1] in "123456789gk" else ""
        return f"{escape} is no escape of RE2{reference}"

    def _class(self) -> None:
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        first = True
        while first or not self._text.startswith("]", self._at):
            if self._at >= len(self._text):
                raise _WrongError("a [ is not closed")
            first = False
            if not self._named_set():
                self._range()
        self._at += 1

    def _named_set(self) -> bool:
        """Read a named set, such as ``[:alpha:]``, within a class; False when there is none."""
        if self._text.startswith("[:", self._at):
            end = self._text.find(":]", self._at + 2)
            if end >= 0:
                name = self._text[self._at + 2 : end].removeprefix("^")
                if not _POSIX.fullmatch(name):
                    raise _WrongError(f"[:{name}:] is no class of characters")
                self._at = end + 2
                return True
        elif self._text.startswith("\\", self._at):
            after = self._text[self._at + 1 : self._at + 2]
            if after and after in "dDsSwW":
                self._at += 2
                return True
            if after and after in "pP":
                self._unicode_group()
                return True
        return False

    def _range(self) -> None:
        begin = self._at
        low = self._character()
        text = self._text
        if text.startswith("-", self._at) and not text.startswith("-]", self._at):
            if self._at + 1 >= len(text):
                raise _WrongError("a [ is not closed")
            self._at += 1
            if self._character() < low:
                raise _WrongError(f"{text[begin : self._at]} is a range that ends before it begins")
