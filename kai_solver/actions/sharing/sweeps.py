"""Sweeps over all admissions of a cycle that assign its victims: backwards to the latest, forwards to the earliest.

Backwards. With ``held`` what the queues hold after a reclaim, rule 3 of `fairness.reclaim` for a levelled queue V that
loses by it is

    held[V] + largest last part of V's victims > kept[V]

whatever the other victims are, since V gains nothing by the reclaim. Rule 4 is about ``held`` as well. What the queues
finally hold is known. So, going backwards, each reclaim takes all that it may of a queue, or nothing. A victim of a
later reclaim was still running before all earlier ones, and that much more V holds.

It is not always good to be late. The reclaimer's own queues hold more, too: rule 1 asks that its leaf queue stays
within its share, and rule 4 that R is less saturated than V. And with two levels above a leaf queue, it may be that it
holds too little for the late reclaims beside it, and its parent too little for the earlier ones from elsewhere.

Forwards, reclaims take victim by victim what they may.
"""

from kai_solver.actions.sharing.tables import (
    BEFORE,
    INVOLVED,
    MOST,
    NOTHING,
    OPEN,
    OURS,
    OUT,
    REFUSED,
    REST,
    SATURATED,
    SHORT,
    TOUCHED,
    UNSEEN,
    WAITS,
    WITH_LAST,
    Groups,
    Scratch,
    Turns,
    smallest,
)
from kai_solver.compiled import entry, kernel
from kai_solver.fairness.kernels import (
    NONE,
    UNLIMITED,
    Row,
    Table,
    Tree,
    add,
    exceeds,
    has_right,
    is_fair,
    is_guaranteed,
    is_larger,
    kept,
    levelled,
    may_look_at,
)

# -- what both ask -----------------------------------------------------------------------------------------------------


@kernel
def may_lose(tree: Tree, held: Table, leaf: int, victim: int, last: Row) -> bool:
    """Whether a reclaim might take victims (leaf queues ``leaf`` and ``victim``): rule 3, asked before all else.

    In most turns most queues may lose nothing. ``held``: by queue, before any part is taken; or once all are, none of
    which is larger than ``last``.
    """
    theirs = levelled(tree, leaf, victim)[1]
    for at in range(3):
        least = kept(tree, theirs, at, True)
        if least != UNLIMITED and held[theirs][at] + last[at] > least:
            return True
    return False


@kernel
def link(groups: Groups, s: Scratch) -> None:
    """List the victims of each admission, in their order."""
    for turn in range(len(s.head)):
        s.head[turn] = NONE
    for victim in range(len(groups.of) - 1, -1, -1):
        turn = s.taker[victim]
        if turn >= 0:
            s.next[victim], s.head[turn] = s.head[turn], victim


@kernel
def receive(tree: Tree, turns: Turns, s: Scratch, turn: int, sign: int) -> None:
    """What the queue of an admission gets; with a ``sign`` of -1 it is taken back."""
    add(tree, s.held, turns.leaf[turn], turns.charge[turn], sign)
    if turns.is_fixed[turn]:
        add(tree, s.fixed, turns.leaf[turn], turns.charge[turn], sign)


# -- backwards ---------------------------------------------------------------------------------------------------------


def _warm_up_back() -> None:
    tree, turns, groups, s = smallest()
    go_back(tree, turns, groups, s, False)


@entry(_warm_up_back, allocates=False)
def go_back(tree: Tree, turns: Turns, groups: Groups, s: Scratch, is_hurried: bool) -> None:
    """Give victims that wait to the latest admissions that may take them; those that have one keep it.

    At first ``s.held`` is what the queues hold when all is admitted and nothing has left. ``is_hurried``: queues that
    may lose nothing are passed over, and not noted as short then.
    """
    s.numbers[SHORT] = s.numbers[SATURATED] = 0
    for queue in range(len(s.missing)):
        s.missing[queue] = 0
    link(groups, s)
    sum_up(tree, groups, s)
    for turn in range(len(turns.leaf) - 1, -1, -1):
        receive(tree, turns, s, turn, -1)
        victim = s.head[turn]
        while victim != NONE:
            add(tree, s.held, groups.queue[victim], groups.charge[victim], 1)
            victim = s.next[victim]
        count = find_able(tree, turns, groups, s, turn, is_hurried)
        for number in range(count):
            add(tree, s.held, groups.leaf[s.able[number]], s.total[s.able[number]], 1)
        if turns.reclaims[turn]:
            refuse(tree, turns, groups, s, turn, count)
        for number in range(count):
            group = s.able[number]
            if not s.is_in[number]:
                continue
            s.size[group] = 0
            for at in range(groups.first[group], groups.first[group + 1]):
                if s.taker[groups.victim[at]] == WAITS:
                    s.taker[groups.victim[at]] = turn


@kernel
def sum_up(tree: Tree, groups: Groups, s: Scratch) -> None:
    """What all that waits in each group comes to; queues hold nothing of any victim."""
    largest = s.row[MOST]
    for at in range(3):
        largest[at] = 0
    for group in range(len(groups.leaf)):
        s.size[group], s.has_last[group] = 0, False
        for at in range(3):
            s.total[group][at] = s.parts[group][at] = s.most[group][at] = s.last[group][at] = 0
    for victim in range(len(groups.of)):
        add(tree, s.held, groups.queue[victim], groups.charge[victim], -1)
        if s.taker[victim] != WAITS:
            continue
        group, end = groups.of[victim], groups.first_part[victim + 1]
        s.size[group] += 1
        for at in range(3):
            s.total[group][at] += groups.charge[victim][at]
        for part in range(groups.first_part[victim], end):
            for at in range(3):
                s.parts[group][at] += groups.part[part][at]
        if end > groups.first_part[victim]:  # Victims come from the smallest on.
            s.has_last[group] = True
            for at in range(3):
                amount = groups.part[end - 1][at]
                s.last[group][at] = amount
                s.most[group][at] = max(s.most[group][at], amount)
                largest[at] = max(largest[at], amount)


@kernel
def find_able(tree: Tree, turns: Turns, groups: Groups, s: Scratch, turn: int, is_hurried: bool) -> int:
    """List the groups that an admission may take at all; how many they are."""
    leaf, reclaims, count = turns.leaf[turn], turns.reclaims[turn], 0
    if reclaims and not has_right(tree, s.held, s.fixed, leaf, turns.asked[turn], turns.is_fixed[turn]):
        return 0
    for group in range(len(groups.leaf)):
        is_able = s.size[group] > 0 and groups.may[groups.able[group]][turn]
        if is_able and reclaims and is_hurried and s.has_last[group]:
            is_able = may_lose(tree, s.held, leaf, groups.leaf[group], s.row[MOST])
        if is_able:
            s.able[count], s.is_in[count] = group, True
            count += 1
    return count


@kernel
def refuse(tree: Tree, turns: Turns, groups: Groups, s: Scratch, turn: int, count: int) -> None:
    """Leave out the groups of levelled queues that may not lose them, until none is refused any more."""
    leaf, asked = turns.leaf[turn], turns.asked[turn]
    for number in range(count):
        s.mine[number], s.theirs[number] = levelled(tree, leaf, groups.leaf[s.able[number]])
    is_changed = True
    while is_changed:
        is_changed = False
        sum_levels(tree, s, leaf, asked, count)
        for number in range(count):
            theirs = s.theirs[number]
            if s.is_in[number] and s.answer[theirs] == UNSEEN:
                s.answer[theirs] = OPEN if permits(tree, s, s.mine[number], theirs, asked) else REFUSED
        for number in range(count):
            if s.is_in[number] and s.answer[s.theirs[number]] == REFUSED:
                s.is_in[number], is_changed = False, True
                add(tree, s.held, groups.leaf[s.able[number]], s.total[s.able[number]], -1)


@kernel
def sum_levels(tree: Tree, s: Scratch, leaf: int, asked: Row, count: int) -> None:
    """Sum up what leaves each levelled queue by the groups that are in, and all below each queue of the reclaimer."""
    involved, queue = s.row[INVOLVED], leaf
    for at in range(3):
        involved[at] = asked[at]
    while queue != NONE:
        for at in range(3):
            s.below[queue][at] = 0
        queue = tree.parent[queue]
    for number in range(count):
        theirs = s.theirs[number]
        s.answer[theirs], s.top[theirs] = UNSEEN, NONE
        for at in range(3):
            s.leaving[theirs][at] = s.largest[theirs][at] = 0
    for number in range(count):
        if not s.is_in[number]:
            continue
        group, theirs, queue = s.able[number], s.theirs[number], s.mine[number]
        # What both have above them: the reclaimer's queues from its levelled one up, which is beside theirs.
        queue = tree.parent[queue] if queue != theirs else queue
        while queue != NONE:
            for at in range(3):
                s.below[queue][at] += s.parts[group][at]
            queue = tree.parent[queue]
        for at in range(3):
            involved[at] = max(involved[at], s.parts[group][at])
            s.leaving[theirs][at] += s.parts[group][at]
            s.largest[theirs][at] = max(s.largest[theirs][at], s.most[group][at])
        if s.has_last[group] and (s.top[theirs] == NONE or is_larger(s.last[group], s.last[s.top[theirs]])):
            s.top[theirs] = group


@kernel
def permits(tree: Tree, s: Scratch, mine: int, theirs: int, asked: Row) -> bool:
    """Whether all able groups of one levelled queue may be taken beside those of the others."""
    guaranteed = is_guaranteed(tree, mine, s.held[mine], asked)
    if not may_look_at(tree, theirs, s.held[theirs], asked, guaranteed):
        return False  # The queue is judged before any of these leave: to take fewer of them would not help.
    if s.top[theirs] == NONE:
        return True  # Nothing of it is tested.
    with_last, rest, ours = s.row[WITH_LAST], s.row[REST], s.row[OURS]
    for at in range(3):
        rest[at] = s.held[theirs][at] - s.leaving[theirs][at]
        with_last[at] = rest[at] + s.largest[theirs][at]
        ours[at] = s.held[mine][at] - s.below[mine][at] + asked[at]
    if not exceeds(tree, theirs, with_last, guaranteed):
        note_short(tree, s, theirs, rest, s.last[s.top[theirs]], guaranteed)
        return False
    for at in range(3):
        if s.row[INVOLVED][at] != 0 and not is_fair(tree, mine, theirs, at, ours[at], rest[at]):
            note_saturated(tree, s, mine, theirs, ours, rest)
            return False
    return True


@kernel
def note_short(tree: Tree, s: Scratch, queue: int, rest: Row, last: Row, guaranteed: bool) -> None:
    """Note by how little ``queue`` fails to hold more than it keeps, with ``rest`` and one ``last`` part.

    Of GPUs, if these are bounded: most queues are in them. Else of memory, or CPU.
    """
    for at in range(2, -1, -1):
        least = kept(tree, queue, at, guaranteed)
        if least != UNLIMITED:
            note(s, queue, at, least + 1 - rest[at] - last[at])
            return


@kernel
def note_saturated(tree: Tree, s: Scratch, mine: int, theirs: int, ours: Row, rest: Row) -> None:
    """Note by how little the victim queue is less saturated than the reclaimer's queue."""
    for at in range(2, -1, -1):
        fair = tree.share[mine][at]
        if fair > 0 and ours[at] > fair:
            is_new = True
            for other in range(s.numbers[SATURATED]):
                is_new = is_new and s.saturated[other] != mine
            if is_new:
                s.saturated[s.numbers[SATURATED]] = mine
                s.numbers[SATURATED] += 1
            note(s, theirs, at, int(ours[at] * (tree.share[theirs][at] / fair)) + 1 - rest[at])
            return


@kernel
def note(s: Scratch, queue: int, resource: int, missing: int) -> None:
    """Keep the least that is missing."""
    if missing <= 0 or 0 < s.missing[queue] <= missing:
        return
    if s.missing[queue] == 0:
        s.short[s.numbers[SHORT]] = queue
        s.numbers[SHORT] += 1
    s.resource[queue], s.missing[queue] = resource, missing


# -- forwards ----------------------------------------------------------------------------------------------------------


def _warm_up_on() -> None:
    tree, turns, groups, s = smallest()
    go_on(tree, turns, groups, s)


@entry(_warm_up_on, allocates=False)
def go_on(tree: Tree, turns: Turns, groups: Groups, s: Scratch) -> None:
    """Let each admission take those of its victims that it may, then those that wait, and were refused to earlier ones.

    At first ``s.held`` is what the queues hold before all of them. All that is taken is allowed.
    """
    link(groups, s)
    nothing = s.row[NOTHING]
    for at in range(3):
        nothing[at] = 0
    for group in range(len(groups.leaf)):
        s.size[group] = 0
    for victim in range(len(groups.of)):
        if s.taker[victim] == WAITS:
            s.size[groups.of[victim]] += 1
    for turn in range(len(turns.leaf)):
        leaf, reclaims = turns.leaf[turn], turns.reclaims[turn]
        count = 0
        for group in range(len(groups.leaf)):
            if s.size[group] > 0 and groups.may[groups.able[group]][turn]:
                first = first_waiting(groups, s, group)
                is_tested = groups.first_part[first + 1] > groups.first_part[first]
                if not reclaims or not is_tested or may_lose(tree, s.held, leaf, groups.leaf[group], nothing):
                    s.able[count] = group
                    count += 1
        if count > 0 or s.head[turn] != NONE:
            take(tree, turns, groups, s, turn, count)
        receive(tree, turns, s, turn, 1)
        victim = s.head[turn]
        while victim != NONE:
            if s.taker[victim] == turn:
                add(tree, s.held, groups.queue[victim], groups.charge[victim], -1)
            victim = s.next[victim]


@kernel
def first_waiting(groups: Groups, s: Scratch, group: int) -> int:
    """The smallest victim of a group that waits."""
    for at in range(groups.first[group], groups.first[group + 1]):
        if s.taker[groups.victim[at]] == WAITS:
            return groups.victim[at]
    return NONE


@kernel
def take(tree: Tree, turns: Turns, groups: Groups, s: Scratch, turn: int, count: int) -> None:
    """Take planned victims, then those of the ``count`` able groups; what is refused waits after that.

    ``s.head`` lists all that were planned or taken then.
    """
    reclaims, has = turns.reclaims[turn], True
    if reclaims:
        has = has_right(tree, s.held, s.fixed, turns.leaf[turn], turns.asked[turn], turns.is_fixed[turn])
        begin(turns, s, turn)
    victim = s.head[turn]
    while victim != NONE:
        if reclaims and not (has and takes(tree, turns, groups, s, turn, victim)):
            s.taker[victim] = OUT
        victim = s.next[victim]
    planned = s.head[turn]
    for number in range(count if has else 0):
        take_waiting(tree, turns, groups, s, turn, s.able[number])
    while planned != NONE:
        if s.taker[planned] == OUT:
            s.taker[planned] = WAITS
            s.size[groups.of[planned]] += 1
        planned = s.next[planned]


@kernel
def take_waiting(tree: Tree, turns: Turns, groups: Groups, s: Scratch, turn: int, group: int) -> None:
    """Take what waits of a group, from the smallest on, until its queue has not enough for any more."""
    for at in range(groups.first[group], groups.first[group + 1]):
        victim = groups.victim[at]
        if s.taker[victim] != WAITS:
            continue
        if not turns.reclaims[turn] or takes(tree, turns, groups, s, turn, victim):
            s.taker[victim] = turn
            s.size[group] -= 1
            s.next[victim], s.head[turn] = s.head[turn], victim
        elif not has_enough(tree, turns, groups, s, turn, victim):
            return


@kernel
def begin(turns: Turns, s: Scratch, turn: int) -> None:
    """Nothing is taken yet by a reclaim."""
    s.numbers[TOUCHED] = 0
    for queue in range(len(s.left)):
        for at in range(3):
            s.left[queue][at] = s.held[queue][at]
    for at in range(3):
        s.row[INVOLVED][at] = 1 if turns.asked[turn][at] > 0 else 0


@kernel
def takes(tree: Tree, turns: Turns, groups: Groups, s: Scratch, turn: int, victim: int) -> bool:
    """Take a victim beside what is taken if rules 2, 3 and 4 allow it; else nothing changes."""
    asked, involved, before = turns.asked[turn], s.row[INVOLVED], s.row[BEFORE]
    mine, theirs = levelled(tree, turns.leaf[turn], groups.queue[victim])
    guaranteed = is_guaranteed(tree, mine, s.held[mine], asked)
    if not may_look_at(tree, theirs, s.held[theirs], asked, guaranteed):
        return False
    for at in range(3):
        before[at] = involved[at]
    touched, first, end = s.numbers[TOUCHED], groups.first_part[victim], groups.first_part[victim + 1]
    done, is_allowed = first, True
    while is_allowed and done < end:
        is_allowed = exceeds(tree, theirs, s.left[theirs], guaranteed)
        if is_allowed:
            add(tree, s.left, groups.queue[victim], groups.part[done], -1)
            for at in range(3):
                if groups.part[done][at] > 0:
                    involved[at] = 1
            done += 1
    if is_allowed and end > first:
        touch(s, mine, theirs)
    if is_allowed and is_unsaturated(tree, s, asked):
        return True
    for part in range(first, done):
        add(tree, s.left, groups.queue[victim], groups.part[part], 1)
    for at in range(3):
        involved[at] = before[at]
    s.numbers[TOUCHED] = touched
    return False


@kernel
def touch(s: Scratch, mine: int, theirs: int) -> None:
    """Note that something of ``theirs`` was taken."""
    for number in range(s.numbers[TOUCHED]):
        if s.theirs[number] == theirs:
            return
    s.mine[s.numbers[TOUCHED]], s.theirs[s.numbers[TOUCHED]] = mine, theirs
    s.numbers[TOUCHED] += 1


@kernel
def is_unsaturated(tree: Tree, s: Scratch, asked: Row) -> bool:
    """Rule 4 for all of which something was taken."""
    for number in range(s.numbers[TOUCHED]):
        mine, theirs = s.mine[number], s.theirs[number]
        for at in range(3):
            is_compared = mine != theirs and s.row[INVOLVED][at] > 0
            ours, left = s.left[mine][at] + asked[at], s.left[theirs][at]
            if is_compared and not is_fair(tree, mine, theirs, at, ours, left):
                return False
    return True


@kernel
def has_enough(tree: Tree, turns: Turns, groups: Groups, s: Scratch, turn: int, victim: int) -> bool:
    """Whether the queue may still lose something, so that others of it may be allowed."""
    asked = turns.asked[turn]
    mine, theirs = levelled(tree, turns.leaf[turn], groups.queue[victim])
    guaranteed = is_guaranteed(tree, mine, s.held[mine], asked)
    if not may_look_at(tree, theirs, s.held[theirs], asked, guaranteed):
        return False
    return exceeds(tree, theirs, s.left[theirs], guaranteed)
