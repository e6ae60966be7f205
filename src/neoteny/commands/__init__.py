"""The commands of ``neoteny``, one module each with a ``main``; `neoteny.cli` chooses among them."""
