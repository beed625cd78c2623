"""Map each registration to the entries it guards, usually one."""

from __future__ import annotations

from typing import Generic, TypeVar

_Name = TypeVar("_Name", str, tuple[str, tuple[str, ...], tuple[str, ...]])


class ByRegistration(Generic[_Name]):
    """Names by registration id. O(1) a name.

    A single name is kept as it is, without a container. Python's collector does not track strings and tuples of strings, and
    there is one such name for each entry.
    """

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, _Name | dict[_Name, None]] = {}

    def add(self, registration_id: str, name: _Name) -> None:
        """Note that this registration guards this name."""
        names = self._names.get(registration_id)
        if names is None:
            self._names[registration_id] = name
        elif isinstance(names, dict):
            names[name] = None
        elif names != name:
            self._names[registration_id] = {names: None, name: None}

    def remove(self, registration_id: str, name: _Name) -> None:
        """Forget the name, if it was noted."""
        names = self._names.get(registration_id)
        if isinstance(names, dict):
            names.pop(name, None)
        if not names or names == name:
            self._names.pop(registration_id, None)

    def guarded(self, registration_id: str) -> tuple[_Name, ...]:
        """Return the names that this registration guards, in the order in which they were noted."""
        names = self._names.get(registration_id)
        if names is None:
            return ()
        return tuple(names) if isinstance(names, dict) else (names,)

    def pop(self, registration_id: str) -> tuple[_Name, ...]:
        """Return the names that this registration guards, and forget them."""
        names = self.guarded(registration_id)
        self._names.pop(registration_id, None)
        return names

    def clear(self) -> None:
        """Forget all names."""
        self._names.clear()

    def __len__(self) -> int:
        """Return the number of registrations."""
        return len(self._names)
