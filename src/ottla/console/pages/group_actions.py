"""What can be done to a group: reset its offsets, remove a member, delete it."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from datetime import UTC
from urllib.parse import urlencode

from starlette.requests import Request

from ottla.clients.admin.groups import CLASSIC, GroupDescription, MemberToRemove
from ottla.console.actions import Field, Form, Plan, Values, action
from ottla.console.render import part
from ottla.console.state import Access, access_of
from ottla.console.views.commands import about, option
from ottla.errors import NonEmptyGroup, OttlaError
from ottla.groups.lookup import active_group, committed_by, existing_groups
from ottla.groups.resets import SCENARIOS, Planned, plan, situation_of
from ottla.times import parse_duration, parse_time
from ottla.types import TopicPartition
from ottla.wording import plural

ALL = ""
SHOWN = 500
_WAYS = {
    "earliest": ("the first available record", "to_earliest"),
    "latest": ("the end: skip everything that is unread", "to_latest"),
    "datetime": ("a time: ISO 8601 in UTC, or epoch milliseconds", "to_timestamp"),
    "duration": ("the start of a last period, such as 36h", "by_duration"),
    "offset": ("an offset, the same in all partitions", "to_offset"),
    "shift": ("the committed offset plus or minus a number, such as -100", "shift_by"),
}
_OPTIONS = {
    "earliest": "--to-earliest",
    "latest": "--to-latest",
    "datetime": "--to-datetime",
    "duration": "--by-duration",
    "offset": "--to-offset",
    "shift": "--shift-by",
}


def group_url(group: str, rest: str = "") -> str:
    """The address of a group's page, or of one below it.

    >>> group_url("a/b", "/plan")
    '/groups/a~2Fb/plan'
    """
    return f"/groups/{part(group)}{rest}"


def lab_url(group: str, period: str) -> str:
    """The address of a replay of a group in the lab. The name may be empty, so it is always there.

    >>> lab_url("a b", "1h")
    '/lab?group=a+b&since=1h'
    """
    return f"/lab?{urlencode({'group': group, 'since': period})}"


async def reset(request: Request, values: Values) -> Plan | Form:
    access = access_of(request)
    admin = access.admin
    (group,) = await existing_groups(admin, [request.path_params["group"]])
    name = group.group_id
    committed = (await committed_by(admin, [name]))[name]
    topics = sorted({key.topic for key in committed})
    to, topic = values.get("to", ""), values.get("topic", ALL)

    def form(problem: str | None = None) -> Form:
        help_text = "Needed for a time, a period, an offset and a shift."
        fields = [
            Field(
                "topic", "Topic", topic, "select", options=[(ALL, "all topics with offsets"), *((t, t) for t in topics)]
            ),
            Field("to", "New offset", to, "select", options=[(one, text) for one, (text, _) in _WAYS.items()]),
            Field("value", "Value", values.get("value", ""), help=help_text),
        ]
        text = "Shows the offsets before and after. Nothing changes before you confirm."
        return Form(f"Reset offsets of {name}", fields, problem, text, "Show the dry run", group_url(name))

    if not committed:
        return form(f"group {name!r} has no committed offsets: start a consumer of it first")
    if not to:
        return form()
    try:
        args = _choice(to, values.get("value", "").strip())
        keys = sorted(key for key in committed if topic in (ALL, key.topic))
        if not keys:
            raise OttlaError(f"the group has no offsets for topic {topic!r}")
        planned = await plan(await situation_of(admin, keys, committed), args)
    except (OttlaError, ArgumentTypeError) as error:
        return form(str(error))
    return _reset_plan(access, group, topic, to, values.get("value", "").strip(), planned)


def _choice(to: str, value: str) -> Namespace:
    """The scenario and its value. Raises OttlaError or ArgumentTypeError."""
    if to not in _WAYS:
        raise OttlaError(f"{to!r} is not a way to choose offsets: use one of {', '.join(_WAYS)}")
    given: object = True
    if to == "datetime":
        given = parse_time(value, UTC)
    elif to == "duration":
        given = parse_duration(value)
    elif to in ("offset", "shift"):
        digits = value.removeprefix("-") if to == "shift" else value
        if not digits.isdecimal() or len(digits) > 18:
            raise OttlaError(f"{value!r} is not a whole number{'' if to == 'shift' else ' from 0 on'}")
        given = int(value)
    return Namespace(**{**dict.fromkeys(SCENARIOS), _WAYS[to][1]: given})


def _reset_plan(
    access: Access, group: GroupDescription, topic: str, to: str, value: str, planned: Sequence[Planned]
) -> Plan:
    name = group.group_id

    async def do() -> str:
        if group.members:
            raise active_group(group, "cannot be reset")
        wanted = {one.key: one.new for one in planned}
        failed = (await access.admin.alter_group_offsets(name, wanted, raise_errors=False)).errors
        access.groups.forget(name)
        if failed:
            key, error = min(failed.items(), key=lambda item: item[0])
            raise OttlaError(f"could not reset {plural(len(failed), 'offset')}; {key}: {error}")
        return f"Reset the offsets of {plural(len(planned), 'partition')} of group {name}."

    again = sum(max((one.current or 0) - one.new, 0) for one in planned)
    skipped = sum(max(one.new - one.current, 0) for one in planned if one.current is not None)
    effects = [
        f"The group reads {plural(again, 'record')} again, and skips {plural(skipped, 'record')}.",
        "This is a dry run: nothing has changed yet.",
    ]
    if group.members:
        effects.append(f"It cannot be done now: {active_group(group, 'cannot be reset')}")
    notes = any(one.note for one in planned)
    headers = ["Topic", "Partition", "Before", "After", "Change", *(["Note"] if notes else [])]
    rows = [
        [
            one.key.topic,
            one.key.partition,
            one.current,
            one.new,
            f"{one.new - (one.current or 0):+,}",
            *([one.note] if notes else []),
        ]
        for one in planned[:SHOWN]
    ]
    if len(planned) > SHOWN:
        effects.append(f"The table has the first {SHOWN} of {len(planned):,} partitions.")
    which = option("--topic", topic) if topic else ["--all-topics"]
    # An equals sign, because a shift may begin with a minus.
    how = f"{_OPTIONS[to]}={value}" if to not in ("earliest", "latest") else _OPTIONS[to]
    command = about(["groups", "reset-offsets"], name, *which, how, "--execute")
    link = group_url(name)
    return Plan(f"Reset offsets of {name}", effects, command, do, "Reset offsets", True, link, table=(headers, rows))


async def delete(request: Request, values: Values) -> Plan | Form:
    admin = access_of(request).admin
    (group,) = await existing_groups(admin, [request.path_params["group"]])
    name = group.group_id
    committed: Sequence[TopicPartition] = list((await committed_by(admin, [name]))[name])

    async def do() -> str:
        try:
            await admin.delete_groups([name])
        except NonEmptyGroup:
            (now,) = await existing_groups(admin, [name])
            raise active_group(now, "cannot be deleted") from None
        return f"Deleted group {name}."

    effects = [f"The group and its offsets of {plural(len(committed), 'partition')} are deleted."]
    if group.members:
        effects.append(f"It cannot be done now: {active_group(group, 'cannot be deleted')}")
    command = about(["groups", "delete"], name)
    return Plan(f"Delete group {name}", effects, command, do, "Delete group", True, group_url(name), "/groups")


async def remove(request: Request, values: Values) -> Plan | Form:
    admin = access_of(request).admin
    (group,) = await existing_groups(admin, [request.path_params["group"]])
    name = group.group_id
    members = {one.member_id: one for one in group.members}
    chosen = members.get(values.get("member", ""))
    if chosen is None:
        options = [(one.member_id, f"{one.member_id} ({one.host.lstrip('/')})") for one in members.values()]
        problem = f"group {name!r} has no such member now" if values.get("member") else None
        field = Field("member", "Member", kind="select", options=options)
        return Form(f"Remove a member of {name}", [field], problem, back=group_url(name))
    who = chosen.instance_id or chosen.member_id

    async def do() -> str:
        if group.type != CLASSIC:
            raise OttlaError("only members of classic groups can be removed: stop the consumer instead")
        member = MemberToRemove(chosen.instance_id, "" if chosen.instance_id else chosen.member_id)
        await admin.remove_members(name, [member], reason="removed in the console")
        access_of(request).groups.forget(name)
        return f"Removed {who} from group {name}."

    effects = [
        f"{who} loses its {plural(len(chosen.assignment), 'partition')}, and the group rebalances.",
        "A consumer that still runs joins again at once. To keep it out, stop it.",
    ]
    command = ["groups", "remove-members", *(["--"] if "-" in (name[:1], who[:1]) else []), name, who]
    return Plan(f"Remove a member of {name}", effects, command, do, "Remove member", True, group_url(name))


routes = [
    action("/groups/{group:name}/reset", reset),
    action("/groups/{group:name}/delete", delete),
    action("/groups/{group:name}/remove", remove),
]
