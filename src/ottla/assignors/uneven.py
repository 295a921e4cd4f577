"""Balance for members with unequal subscriptions: exact, by improving an assignment along chains of moves.

Partitions of one topic differ only in their owner, so the search works on counts: ``held[member][topic]`` now, and
``had[member][topic]`` before. A move takes one partition of a topic from one member to another that subscribes to
it. There are three steps, each starting from the result of the previous one:

1. all members keep what they had, and free partitions go to the subscriber with the fewest;
2. single moves from the most to the least loaded, then chains of moves (a gives to b, b gives to c), until no chain
   leads from a member to one with two partitions fewer: then no assignment is more even;
3. cycles of moves that keep the loads as even and give members back what they had, until there are none: then no
   equally even assignment moves fewer partitions.

Step 3 searches for negative cycles in a graph of members and topics. A move costs 1 when the giver loses a partition
that it had, and earns 1 when the taker gets one back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

#: Step 3 stops after visiting so many edges: some seconds, which only groups of thousands of members can need.
EFFORT = 40_000_000


def balance_unequal(topics_of: Sequence[Sequence[int]], owners: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the new owners of each topic's partitions, from the topics of each member and the previous owners."""
    shares = _Shares(topics_of, owners)
    shares.fill_free_partitions([len(owned_by) for owned_by in owners])
    shares.move_from_most_to_least()
    shares.move_along_chains()
    if any(shares.missed):
        shares.give_back(EFFORT)
    return _hand_out(shares, owners)


class _Shares:
    """The assignment that is being improved."""

    def __init__(self, topics_of: Sequence[Sequence[int]], owners: Sequence[Sequence[int]]) -> None:
        self.topics_of = topics_of
        self.topic_sets = [frozenset(topics) for topics in topics_of]
        self.subscribers: list[list[int]] = [[] for _ in owners]
        for member, topics in enumerate(topics_of):
            for topic in topics:
                self.subscribers[topic].append(member)
        self.had: list[dict[int, int]] = [{} for _ in topics_of]
        for topic, owned_by in enumerate(owners):
            for member, count in Counter(owned_by).items():
                if member >= 0 and topic in self.topic_sets[member]:
                    self.had[member][topic] = count
        self.held = [dict(had) for had in self.had]
        self.loads = [sum(had.values()) for had in self.had]
        #: By member, topics of which it has more than before; by topic, members that have fewer than before.
        self.gained: list[set[int]] = [set() for _ in topics_of]
        self.missed: list[set[int]] = [set() for _ in owners]

    def add(self, topic: int, member: int, count: int) -> None:
        held, had = self.held[member], self.had[member].get(topic, 0)
        now = held.get(topic, 0) + count
        if now:
            held[topic] = now
        else:
            del held[topic]
        self.loads[member] += count
        (self.gained[member].add if now > had else self.gained[member].discard)(topic)
        (self.missed[topic].add if now < had else self.missed[topic].discard)(member)

    def move(self, topic: int, giver: int, taker: int) -> None:
        self.add(topic, giver, -1)
        self.add(topic, taker, 1)

    # ── step 1 ────────────────────────────────────────────────────────────────────────────────────────────────────

    def fill_free_partitions(self, counts: Sequence[int]) -> None:
        free = list(counts)
        for held in self.held:
            for topic, count in held.items():
                free[topic] -= count
        # Topics with few subscribers first: the others can compensate for them.
        for topic in sorted(range(len(free)), key=lambda topic: len(self.subscribers[topic])):
            if free[topic]:
                self._fill(topic, free[topic])

    def _fill(self, topic: int, count: int) -> None:
        """Give `count` partitions, one by one, to the subscriber with the fewest, then the first."""
        loads = self.loads
        line = sorted(self.subscribers[topic], key=loads.__getitem__)
        total, low = count, 0
        # The first `low` of the line end up level, at most one apart.
        while low < len(line) and (low == 0 or loads[line[low]] * low < total):
            total += loads[line[low]]
            low += 1
        level, more = divmod(total, low)
        for position, member in enumerate(sorted(line[:low])):
            gets = level - loads[member] + (position < more)
            if gets:
                held = self.held[member]
                held[topic] = held.get(topic, 0) + gets
                loads[member] += gets
                self.gained[member].add(topic)

    # ── step 2 ────────────────────────────────────────────────────────────────────────────────────────────────────

    def move_from_most_to_least(self) -> None:
        """Make single moves while a member with the most partitions shares a topic with one that has two fewer."""
        levels = _Levels(self.loads)
        while (giver := levels.highest()) is not None:
            found = self._taker(giver, levels)
            if found is None:
                levels.retire(giver)
                continue
            topic, taker = found
            self.move(topic, giver, taker)
            levels.update(giver, self.loads[giver])
            levels.update(taker, self.loads[taker])

    def _taker(self, giver: int, levels: _Levels) -> tuple[int, int] | None:
        held = self.held[giver]
        for taker in levels.below(self.loads[giver] - 1):
            wanted = self.topic_sets[taker]
            if not wanted.isdisjoint(held):
                gained = self.gained[giver] & wanted
                return (min(gained) if gained else next(topic for topic in held if topic in wanted)), taker
        return None

    def move_along_chains(self) -> None:
        """Make chains of moves until none leads from a member to one with two partitions fewer."""
        open_members = set(range(len(self.loads)))
        open_topics = set(range(len(self.subscribers)))
        while open_members:
            most = max(self.loads[member] for member in open_members)
            sources = sorted(member for member in open_members if self.loads[member] == most)
            chain, seen_members, seen_topics = self._chain(sources, most, open_members, open_topics)
            for giver, topic, taker in chain:
                self.move(topic, giver, taker)
            if not chain:
                # No chain leads out of the visited part, so nothing there can become more even.
                open_members -= seen_members
                open_topics -= seen_topics

    def _chain(
        self, sources: list[int], most: int, open_members: set[int], open_topics: set[int]
    ) -> tuple[list[tuple[int, int, int]], set[int], set[int]]:
        came_from: dict[int, tuple[int, int]] = {}
        seen, topics = set(sources), set[int]()
        queue = list(sources)
        for giver in queue:
            for topic in self.held[giver]:
                if topic in topics or topic not in open_topics:
                    continue
                topics.add(topic)
                for taker in self.subscribers[topic]:
                    if taker in seen or taker not in open_members:
                        continue
                    seen.add(taker)
                    came_from[taker] = (giver, topic)
                    if self.loads[taker] <= most - 2:
                        return _trace(came_from, taker), seen, topics
                    queue.append(taker)
        return [], seen, topics

    # ── step 3 ────────────────────────────────────────────────────────────────────────────────────────────────────

    def give_back(self, effort: int) -> None:
        """Undo moves along cycles that keep everything as even."""
        while effort > 0 and any(self.missed):
            search = _Cycles(self)
            cycle = search.find(effort)
            if not cycle:
                return
            for giver, topic, taker in cycle:
                self.move(topic, giver, taker)
            effort -= search.looked_at


def _trace(came_from: dict[int, tuple[int, int]], end: int) -> list[tuple[int, int, int]]:
    chain = []
    while end in came_from:
        giver, topic = came_from[end]
        chain.append((giver, topic, end))
        end = giver
    return chain


class _Levels:
    """Members by load, kept in order without sorting again."""

    def __init__(self, loads: Sequence[int]) -> None:
        self._load = list(loads)
        self._levels: dict[int, dict[int, None]] = {}
        for member, load in enumerate(loads):
            self._levels.setdefault(load, {})[member] = None
        self._retired: set[int] = set()
        self._top = max(loads)
        self._bottom = min(loads)

    def update(self, member: int, load: int) -> None:
        del self._levels[self._load[member]][member]
        self._load[member] = load
        self._levels.setdefault(load, {})[member] = None

    def retire(self, member: int) -> None:
        self._retired.add(member)

    def highest(self) -> int | None:
        """Return a member with the highest load that is not retired; loads at the top never grow."""
        while self._top >= 0:
            for member in self._levels.get(self._top, ()):
                if member not in self._retired:
                    return member
            self._top -= 1
        return None

    def below(self, load: int) -> Iterable[int]:
        """Return the members with less than this load, the lowest first."""
        while self._bottom < load and not self._levels.get(self._bottom):
            self._bottom += 1
        for level in range(self._bottom, load):
            yield from self._levels.get(level, ())


class _Cycles:
    """One search for a cycle of moves with a gain: Bellman-Ford, from all members at once.

    Nodes are members, topics and a hub that is connected with all members: a chain between two members closes to a
    cycle there if the loads stay as even. A load weighs more than any number of moves.
    """

    def __init__(self, shares: _Shares) -> None:
        self.shares = shares
        self.looked_at = 0
        self._weight = sum(shares.loads) + 1
        #: Distances from the hub: the more a member has, the better it is to take from it.
        self._member = [-self._weight * max(load - 1, 0) for load in shares.loads]
        self._member_from: dict[int, tuple[int, int]] = {}
        self._topic = [0] * len(shares.subscribers)
        self._topic_from = [-1] * len(shares.subscribers)

    def find(self, effort: int) -> list[tuple[int, int, int]]:
        """Return the moves of a cycle with a gain, or an empty list."""
        changed: Collection[int] = range(len(self._member))
        while changed and self.looked_at < effort:
            changed = self._take(self._give(changed))
            if cycle := self._closed(changed):
                return cycle
        return []

    def _give(self, members: Iterable[int]) -> list[int]:
        """Go from members to the topics of which they can give a partition."""
        changed: set[int] = set()
        distance, came_from = self._topic, self._topic_from
        for member in members:
            near = self._member[member]
            held, had = self.shares.held[member], self.shares.had[member]
            self.looked_at += len(held)
            for topic, count in held.items():
                cost = near + (count <= had.get(topic, 0))
                if cost < distance[topic]:
                    distance[topic] = cost
                    came_from[topic] = member
                    changed.add(topic)
        return sorted(changed)

    def _take(self, topics: Iterable[int]) -> list[int]:
        """Go from topics to the members that can take a partition."""
        changed: set[int] = set()
        distance, came_from = self._member, self._member_from
        for topic in topics:
            near, giver = self._topic[topic], self._topic_from[topic]
            takers, missed = self.shares.subscribers[topic], self.shares.missed[topic]
            self.looked_at += len(takers)
            for member in takers:
                cost = near - (member in missed)
                if cost < distance[member]:
                    distance[member] = cost
                    came_from[member] = (giver, topic)
                    changed.add(member)
        return sorted(changed)

    def _closed(self, changed: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return a cycle among the paths so far, or one that a changed member closes at the hub."""
        walked: dict[int, int] = {}
        for start in changed:
            member = start
            while member not in walked and member in self._member_from:
                walked[member] = start
                member = self._member_from[member][0]
            if walked.get(member) == start:
                return self._way_to(member, until=member)
        for member in changed:
            if self._member[member] + self._weight * self.shares.loads[member] < 0:
                return self._way_to(member, until=None)
        return []

    def _way_to(self, member: int, until: int | None) -> list[tuple[int, int, int]]:
        way: list[tuple[int, int, int]] = []
        while member in self._member_from and (not way or member != until):
            giver, topic = self._member_from[member]
            way.append((giver, topic, member))
            member = giver
        return way


def _hand_out(shares: _Shares, owners: Sequence[Sequence[int]]) -> list[list[int]]:
    """Turn counts into partitions: each member keeps its first ones, and the others are dealt out by number."""
    return [_hand_out_topic(shares, topic, owned_by) for topic, owned_by in enumerate(owners)]


def _hand_out_topic(shares: _Shares, topic: int, owned_by: Sequence[int]) -> list[int]:
    given = list(owned_by)
    strangers = {owner for owner in set(owned_by) if owner < 0 or topic not in shares.topic_sets[owner]}
    free = [number for number, owner in enumerate(owned_by) if owner in strangers] if strangers else []
    if missed := shares.missed[topic]:
        room = {member: shares.held[member].get(topic, 0) for member in missed}
        for number, owner in enumerate(owned_by):
            if owner in room:
                room[owner] -= 1
                if room[owner] < 0:
                    free.append(number)
        free.sort()
    rest = iter(free)
    if free:
        for member in shares.subscribers[topic]:
            if topic in shares.gained[member]:
                for _ in range(shares.held[member][topic] - shares.had[member].get(topic, 0)):
                    given[next(rest)] = member
    return given
