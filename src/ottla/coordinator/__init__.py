"""The group coordinator: members, assignments and committed offsets. State machines without I/O, clock or chance."""
