"""Rule ``ranks``: neighbours in rank are as near each other as the places of their podset allow."""

from collections.abc import Iterator

from kai_solver.check.domains import Atlas
from kai_solver.check.scene import Change, Scene
from kai_solver.check.violation import Violation
from kai_solver.domain import Bind, PodSet, Topology
from kai_solver.topology import Rank, fewest_apart, named_topology, neighbours_apart, rank_of


def judge_ranks(scene: Scene) -> Iterator[Violation]:
    """At every level, no more neighbours in rank are in different domains than in the best order of the same places.

    Tested if all running pods of a podset are new and identical, have ranks, and none was promised a node. Where pods
    have rules between them an exchange of two might break one, and nothing is asked.
    """
    topologies = {topology.name: topology for topology in scene.snapshot.topologies}
    trees = {id(change.gang.root): change.gang.root for change in scene.changes.values()} if topologies else {}
    named = {key: named_topology(tree, topologies) for key, tree in trees.items()}
    along = {key: topologies[name] for key, name in named.items() if name is not None}
    mine = [change for change in scene.changes.values() if id(change.gang.root) in along] if along else []
    ranked = [c for c in mine if any(rank_of(scene.pods[b.pod].labels) for b in c.binds)]
    if not ranked or _speak_of_pods(scene):
        return
    atlas = Atlas(scene)
    for change in ranked:
        for podset in change.gang.root.podsets():
            yield from _judge(scene, atlas, change, podset, along[id(change.gang.root)])


def _speak_of_pods(scene: Scene) -> bool:
    """Whether pods of gangs have rules between them."""
    if not any(constraints.speaks_of_pods for constraints in scene.census.constraints.values()):
        return False
    return any(pod.constraints.speaks_of_pods for gang in scene.snapshot.gangs for pod in gang.pods)


def _judge(scene: Scene, atlas: Atlas, change: Change, podset: PodSet, topology: Topology) -> Iterator[Violation]:
    nodes = [node for _, node in _in_order(scene, change, podset)]
    for level in topology.levels:
        domains = atlas.domains(topology.name, level.node_label) or {}
        places = [domains.get(node) for node in nodes]
        apart, least = neighbours_apart(places), fewest_apart(places)
        if apart > least:
            where = f"gang {change.gang.key}, podset {podset.name}"
            text = f"{apart} neighbours in rank are in different domains of {level.node_label}, where {least} would do"
            yield Violation("ranks", change.gang.key, f"{where}: {text}")


def _in_order(scene: Scene, change: Change, podset: PodSet) -> list[tuple[Rank, str]]:
    """Rank and node of the podset's new pods; empty if it has others, or they are not identical, or have no ranks."""
    mine = [bind for bind in change.binds if scene.pods[bind.pod].podset == podset.name]
    ranked = [(rank, bind.node) for bind in mine if (rank := rank_of(scene.pods[bind.pod].labels)) is not None]
    likes = {_likeness(scene, bind) for bind in mine}
    is_whole = len(ranked) == len(mine) and not any(pod.podset == podset.name for pod in change.before.values())
    return sorted(ranked) if is_whole and len(likes) == 1 else []


def _likeness(scene: Scene, bind: Bind) -> tuple[object, ...]:
    """What pods must have in common to exchange their places."""
    pod = scene.pods[bind.pod]
    promised = pod.key if pod.nominated_node else ""
    return pod.request, pod.gpu, pod.constraints, pod.containers, pod.claims, promised, bind.action, bind.nominated
