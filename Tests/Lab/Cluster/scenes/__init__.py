"""The scenes in the order in which they run. Each has a `play` in its own file."""

import typing

from . import boots, dead_node, file_system, kills, node_loss, other_node, own_spools


class Scene(typing.NamedTuple):
    number: int
    title: str
    is_shared: bool
    play: typing.Callable


SCENES = [
    Scene(1, "A spool each: a node dies with uploads open", False, own_spools.play),
    Scene(0, "The requirements of a shared spool on the file system", True, file_system.play),
    Scene(2, "One spool: every request to the other node", True, other_node.play),
    Scene(5, "One spool: a node restarts, and commands on both", True, boots.play),
    Scene(6, "One spool: the deliveries of a dead node", True, dead_node.play),
    Scene(3, "One spool: kill -9 at every moment", True, kills.play),
    Scene(4, "One spool: a node is lost, fenced, and wakes", True, node_loss.play),
]
