"""Entry point of tuning: find a stored result, or measure and store one, for a process or a group."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from cujit.arch import Arch
from cujit.arch.support import dotted
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part, make_key
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import Keyed, Uncacheable
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.devices.device import Device
from cujit.devices.jit import processor
from cujit.devices.streams import DeviceLike
from cujit.errors import ArchError, ArgumentError, FormatError, NotTunedError, OptionError, counted, read_int, spell
from cujit.forks import cached_property
from cujit.kernel import Kernel
from cujit.loading import jit, target_for
from cujit.machine import resolve_device
from cujit.program import runner
from cujit.toolchain.driver import open_driver
from cujit.tuning.measuring import Bench, Check, Strategy, Workload, measured
from cujit.tuning.ranks import Ranks
from cujit.tuning.records import SCHEMA, TuningRecord
from cujit.tuning.spaces import Value, Variant, shape_text, variants_of
from cujit.values import NamedTuple, dataclass
from cujit.values.keywords import has_keywords, take
from cujit.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cujit.compiler.options.keywords import Keywords
    from cujit.profile import Peaks

    class TuneKeywords(Keywords, total=False):
        """The fields of ``TuneSettings``, and options of the compiler."""

        constraint: Callable[[Mapping[str, Any]], object] | None
        check: Check | None
        strategy: Strategy | None
        trials: int
        rounds: int
        executor: Executor | str | None
        group: object
        on: str | None
        arch: Arch | str | None
        cache: Cache | bool | None


_WORK = "tuning"
_WAIT_S = 1800.0
"""How long a process waits for another that measures the same: else both would, side by side, and worse."""

_MODES = ("auto", "never", "again")
_NEVER_HELP = "tune on such a device in advance, into a cache or pack in CUJIT_CACHE_ROOTS, or set CUJIT_TUNE=auto"


@dataclass(frozen=True)
class Tuned:
    """Result of ``tune``: the values of the fastest candidate, its kernel, and the record of all measurements.

    ``provenance`` states whether the result was measured now. ``stale`` describes how the conditions of the measurement
    differ from the current conditions (for example, an older driver). If the conditions are the same, ``stale`` is
    empty. cujit still uses a stale result.

    Example::

        tuned = cujit.tune(CODE, {"THREADS": [128, 256]}, lambda k, v: lambda: k[4, v["THREADS"]](2.0, x, y, 1000),
                           kernel="axpy<float>", becomes={"THREADS": "launch"}, shape=1000, device=device)
        print(tuned.values, tuned.kernel, tuned.stale)
    """

    record: TuningRecord
    provenance: Provenance
    stale: str
    _load: Callable[[], Kernel]

    @property
    def values(self) -> Mapping[str, Any]:
        """The values of the winning candidate."""
        return self.record.best.values

    @cached_property
    def kernel(self) -> Kernel:
        """The winner's kernel, loaded on the device on first access."""
        return self._load()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"<Tuned {self.record.kernel} {self.record.shape}: {values}, {self.provenance.outcome.value}>"


class TuneSettings(NamedTuple):
    """The candidates, how they are compiled and measured, and the processes involved."""

    constraint: Callable[[Mapping[str, Any]], object] | None = None
    check: Check | None = None
    strategy: Strategy | None = None
    trials: int = 64
    rounds: int = 5
    executor: Executor | str | None = None
    group: object = None
    on: str | None = None
    arch: Arch | str | None = None
    cache: Cache | bool | None = None


@has_keywords(TuneSettings)
def tune(
    source: Source | str | os.PathLike[str],
    space: Mapping[str, Iterable[Value]],
    workload: Workload,
    *,
    shape: object,
    kernel: str | None = None,
    becomes: Mapping[str, str] | None = None,
    device: DeviceLike | str | Sequence[DeviceLike | str] | None = None,
    options: Mapping[str, object] | Options | None = None,
    **more: Unpack[TuneKeywords],
) -> Tuned:
    """Find the fastest variant of a kernel on a device. cujit measures once and stores the result for every process.

    cujit stores the result in the cache. The cache key covers the source and its headers, the compiler, the shape, the
    candidates, the GPU, and its driver. On a cache hit, cujit compiles only the winner and measures nothing. If a
    result is from a different driver version, cujit uses the result and marks it as ``stale``. A candidate ties with
    the fastest if its median is within the spread of the fastest and at most 2% higher. The first of the tied
    candidates wins. See docs/tuning.md.

    Args:
        source: CUDA C++, as for ``cujit.jit``.
        space: parameter names with their candidate values: ints, floats, bools, or strings. Each parameter is a macro
            in the source, unless ``kernel`` or ``becomes`` uses the parameter in another way.
        workload: function that returns the function to time. ``workload(kernel, values)`` returns a function without
            parameters that launches in the default stream.
        shape: everything that the workload depends on in addition to the source, such as sizes and dtypes: numbers,
            strings, or a list or dict of these.
        kernel: name of the kernel. For a template, specify the instance with parameter names in braces, such as
            ``"matmul<{TILE}, float>"``. Default: the only kernel.
        becomes: how each parameter is used, by parameter name: ``"define"`` for a macro, ``"option"`` for the compiler
            option with the same name, or ``"launch"`` if only the workload uses the parameter.
        device: device to tune for. Several GPUs of the same model share the work. Default: the first GPU, or the CPU
            device if there is no GPU.
        options: compiler options for all candidates, as a mapping. ``more`` are compiler options as keyword arguments.
        constraint: function that returns whether a combination of values is a candidate.
        check: function to call as ``check(values)`` after the first launch of each candidate. If it returns False or
            raises an AssertionError, the candidate is rejected.
        strategy: object that chooses candidates with ``ask`` and ``tell``, such as ``optuna.create_study()``. Default:
            try all candidates.
        trials: number of candidates that the strategy chooses.
        rounds: number of additional measurement rounds, which interleave the candidates that are close to the fastest.
        executor: executor that compiles the candidates, as for ``cujit.farm.build``. Default: compile them in this
            process, one at a time.
        group: ranks that tune together. One rank decides, and all ranks must call ``tune``. The group is an mpi4py
            communicator, or an object with ``rank`` and ``bcast(value, root=0)``, or with ``get_rank()`` and
            ``broadcast_object_list(values, src=0)``.
        on: name of a GPU model that you don't have, such as ``"H200"``. cujit launches each candidate once on the CPU
            device and ranks the candidates by their lower bounds on this GPU (docs/profile.md). Measured results take
            precedence.
        arch: architecture to compile for, such as ``sm_90a``. Default: the architecture of the device.
        cache: as for ``cujit.compile``.

    Raises:
        NotTunedError: ``CUJIT_TUNE=never`` is set and there is no stored result, or every candidate fails.
        OptionError: an argument is malformed.
        ArgumentError: ``shape`` is invalid, the workload doesn't return a function, or its arguments don't match the
            kernel.
        DriverError: a failed candidate made the GPU context unusable. cujit stores no result.
        CujitError: see ``cujit.jit``.

    Example::

        def workload(kernel, v):
            launch = kernel[-(-1000 // v["THREADS"]), v["THREADS"]]
            return lambda: launch(2.0, x, y, 1000)

        space = {"THREADS": [128, 256]}
        tuned = cujit.tune(CODE, space, workload, kernel="axpy<float>", becomes={"THREADS": "launch"}, shape=1000,
                           device=device)
        workload(tuned.kernel, tuned.values)()
    """
    settings = take(TuneSettings, more, tune, is_all=False)
    ranks = Ranks.of(settings.group)
    try:
        how = _MeasureOptions.of(workload, settings)
        variants = variants_of(space, kernel, becomes, settings.constraint)
        places = _places(device if settings.on is None or device is not None else "cpu")
        chosen = Options.of(options, more, tune)
        variants[0].options(chosen)  # names of options that there are not
        far = None if settings.on is None else _peaks(settings.on, places)
        arch = settings.arch if settings.arch is not None or far is None else far.product.arch
        task = _Task(
            Source.of(source), variants, kernel, shape_text(shape), chosen, arch, settings.cache, places, how, far
        )
        program = task.program
    except BaseException as e:
        ranks.give_up(e)
        raise
    answer = ranks.agreed(task.decided)
    if answer.program != program:
        raise OptionError(
            f"rank {ranks.rank} requests a different tuning run than rank 0: the source, compiler, shape or "
            "set of candidates differs",
            help="pass the same arguments on all ranks",
        )
    return task.tuned(answer)


class _MeasureOptions(NamedTuple):
    """How candidates are compiled and measured."""

    workload: Workload
    check: Check | None
    strategy: Strategy | None
    trials: int
    rounds: int
    executor: Executor | str | None

    @classmethod
    def of(cls, workload: Any, settings: TuneSettings) -> _MeasureOptions:
        check, strategy, trials, rounds = settings.check, settings.strategy, settings.trials, settings.rounds
        for name, given in (("workload", workload), ("check", check)):
            if not callable(given) and not (name == "check" and given is None):
                raise OptionError(f"{name} is {spell(given)}, expected a function", help=_CALLS[name])
        if strategy is not None and not (callable(getattr(strategy, "ask", None)) and hasattr(strategy, "tell")):
            raise OptionError(
                f"strategy is {spell(strategy)}, expected an object with ask and tell",
                help="write, for example, strategy=optuna.create_study()",
            )
        least = {"least": 1}
        numbers = read_int(trials, "trials", OptionError, **least), read_int(rounds, "rounds", OptionError, **least)
        return cls(workload, check, strategy, *numbers, settings.executor)

    def __str__(self) -> str:
        if self.strategy is None:
            return "all"
        chooser = getattr(self.strategy, "sampler", self.strategy)
        return f"{type(chooser).__name__}, {self.trials} trials"


_CALLS = {
    "workload": "workload=lambda kernel, v: functools.partial(kernel[grid, block], x, y, n)",
    "check": "check=lambda v: np.allclose(y.numpy(), wanted)",
}


class _Answer(NamedTuple):
    """The message to the ranks of a group: the record, its origin, and the program."""

    record: TuningRecord
    provenance: Provenance
    program: str


@dataclass(frozen=True)
class _Task:
    """A tuning run with its requested settings."""

    source: Source
    variants: tuple[Variant, ...]
    kernel: str | None
    shape: str
    chosen: Options
    arch: Arch | str | None
    cache: Cache | bool | None
    places: tuple[Device, ...]
    how: _MeasureOptions
    far: Peaks | None = None
    """The GPU that is not here."""

    @property
    def name(self) -> str:
        """The name for users."""
        return self.kernel or self.source.name

    @cached_property
    def tools(self) -> Runner:
        """The compiler, and the cache."""
        return runner(self.cache)

    @cached_property
    def target(self) -> Arch:
        """The architecture to compile for."""
        if self.far is not None and self.arch is not None:
            return Arch.parse(self.arch)
        return target_for(self.places[0], self.arch, self.tools)

    def request(self, variant: Variant | None) -> Request:
        """Return the compile request of a candidate, or the common part of all requests."""
        names = () if variant is None or variant.kernel is None else (variant.kernel,)
        options = self.chosen if variant is None else variant.options(self.chosen)
        return Request.of(self.source, None, self.target, names, options, self.tools)

    @cached_property
    def _keyed(self) -> Keyed | Uncacheable:
        """The key of the common part of all compiles, or of one compile if only its headers are known."""
        some = min(self.variants, key=lambda variant: variant.text)
        jobs = [CompileJob(self.request(variant)) for variant in (None, some)]
        jobs[0].check()
        if self.tools.cache is None or self.tools.keys is None:
            return Uncacheable("there is no cache")
        keyed = jobs[0].key(self.tools.keys)
        return keyed if isinstance(keyed, Keyed) else jobs[1].key(self.tools.keys)

    @cached_property
    def _parts(self) -> list[Part]:
        """The parts of the tuning key for any device: the parts of a compile, and the candidates."""
        known = self._keyed
        compile = known.key.parts if isinstance(known, Keyed) else tuple(self.request(None).parts())
        return [
            Part.text("name", self.name),
            Part.text("measuring", str(SCHEMA)),
            Part.text("shape", self.shape),
            Part.text("candidates", str(len(self.variants))),
            Part.content("set of candidates", "\n".join(sorted(variant.text for variant in self.variants))),
            Part.text("tried", str(self.how)),
            Part.text("checked", "no" if self.how.check is None else "yes"),
            *compile,
        ]

    @cached_property
    def program(self) -> str:
        """A digest of the tuning problem, which all ranks share."""
        return make_key(_WORK, self._parts).digest

    @cached_property
    def _circumstances(self) -> tuple[str, int, str]:
        """Product, processors and driver of the device; there is no driver of a GPU that is not here."""
        if self.far is not None:
            return self.far.name, self.far.processors, ""
        return self.places[0].product, self.places[0].limits.processors, driver_of(self.places[0])

    def _keys(self) -> tuple[Key, Key]:
        """Return the key of the answer, and a key that is the same for every driver."""
        by_name = self._key_by_name() if self.far is not None else None
        if by_name is not None:
            return by_name, by_name
        product, processors, driver = self._circumstances
        return self._key(product, processors, driver), self._key(product, processors, "any")

    def _key_by_name(self) -> Key | None:
        """Return the key that users with a GPU share with users who only name it. None if the GPU
        is not in the table.
        """
        try:
            far = self.far or _peaks(self.places[0].product)
        except ArchError:
            return None
        return self._key(far.name, far.processors, "by name")

    def _key(self, product: str, processors: int, driver: str) -> Key:
        place = {"device": product, "processors": str(processors), "driver": driver}
        return make_key(_WORK, [*self._parts, *(Part.text(name, text) for name, text in place.items())])

    def decided(self) -> _Answer:
        """Return a stored result, or measure.

        Raises:
            NotTunedError: there is no result and measuring is forbidden, or no candidate runs.
        """
        mode, cache = _mode(), self.tools.cache
        key, of_any = self._keys()
        if cache is None or isinstance(self._keyed, Uncacheable):
            if mode == "never":
                raise self._missed(key)
            reason = self._keyed.reason if isinstance(self._keyed, Uncacheable) else ""
            return _Answer(_record(self._made()), Provenance(Outcome.UNCACHED, reason=reason), self.program)
        found = self._found(cache, key) or (self._found(cache, of_any) if mode != "again" else None)
        if found is None and mode == "never":
            found = self._found(cache, self._key_by_name())
            if found is None:
                raise self._missed(key)
        if found is None:
            made, provenance = cache.get_or_make(key, self._made, least_wait_s=_WAIT_S)
            if provenance.outcome is Outcome.MADE and self.far is None:
                self._keep(cache, made, (of_any, self._key_by_name()))
            found = _record(made), provenance
        return _Answer(*found, self.program)

    def _keep(self, cache: Cache, made: Artifact, keys: Iterable[Key | None]) -> None:
        """Replace the previous answer with an answer that was measured."""
        for key in filter(None, keys):
            cache.discard(key)
            cache.keep(key, made)

    def _found(self, cache: Cache, key: Key | None) -> tuple[TuningRecord, Provenance] | None:
        if key is None:
            return None
        found = cache.find(key, is_read=True)
        try:
            return None if found is None else (_record(found[0]), found[1])
        except FormatError:
            cache.discard(key)
            return None

    def _missed(self, key: Key) -> NotTunedError:
        product, processors, driver = self._circumstances
        lines = [
            f"no cache contains a tuning result of {self.name} for {self.shape} on {product} ({processors} "
            f"processors, {driver})"
        ]
        lines[0] += f" over {len(self.variants)} candidates, and nothing is measured (CUJIT_TUNE=never)"
        cache = self.tools.cache
        if isinstance(self._keyed, Uncacheable):
            lines.append(f"it has no cache key: {self._keyed.reason}")
        nearest = None if cache is None else cache.why(key)
        lines.append(str(nearest).replace("\n", "\n  ") if nearest else "there is no similar entry")
        roots = () if cache is None else tuple(str(root.root) for root in cache.stores)
        lines.append(f"searched: {', '.join(roots) or 'nothing'}")
        return NotTunedError("\n  ".join(lines), nearest=nearest, searched=roots, help=_NEVER_HELP)

    def _made(self) -> Artifact:
        """Measure, and return the record."""
        how = self.how
        gpu = "" if self.far is None else self.far.name
        benches = [Bench(place, self.load, how.workload, how.check, gpu) for place in self.places]
        candidates, winner = measured(self.variants, benches, self._built, how.rounds, how.strategy, how.trials)
        if winner is None:
            lost = next((f": {one.error}" for one in candidates if one.error), "")
            raise NotTunedError(f"no candidate of {self.name} runs on {self.places[0].name}; the first one{lost}")
        record = TuningRecord(self.name, self.shape, *self._circumstances, candidates, winner)
        return Artifact(ImageKind.TUNING, record.to_json(), name=self.name, tool=f"cujit {__version__}")

    def _built(self, numbers: Iterable[int]) -> Mapping[int, str]:
        """Make the executor compile candidates into the cache. Return why their compiler died, by number.

        Whatever else failed is compiled here, and fails here.
        """
        wanted: dict[Request, list[int]] = {}
        if self.how.executor is not None and self.far is None:
            for number in numbers:
                wanted.setdefault(self.request(self.variants[number]), []).append(number)
        if not wanted or self.how.executor is None:
            return {}
        from cujit.farm import build  # start-up: an answer that is there needs no farm

        sink = self.tools.cache or Cache(None)  # which it refuses
        died = build(list(wanted), executor=self.how.executor, sink=sink).quarantined
        return {number: str(one) for one in died if one.request is not None for number in wanted[one.request]}

    def load(self, place: Device, variant: Variant) -> Kernel:
        """Load a candidate.

        Raises:
            ArgumentError: no kernel was named, and there are several.
            CujitError: as of ``jit``.
        """
        names = () if variant.kernel is None else (variant.kernel,)
        options = variant.options(self.chosen)
        module = jit(self.source, names=names, device=place, arch=self.arch, options=options, cache=self.cache)
        if variant.kernel is not None:
            return module[variant.kernel]
        if len(module) != 1:
            raise ArgumentError(
                f"{self.source.name} contains {counted(len(module), 'kernel')}",
                help="write, for example, kernel='name'",
            )
        return next(iter(module.values()))

    def tuned(self, answer: _Answer) -> Tuned:
        """Return an answer for the user."""
        record = answer.record
        best = next((v for v in self.variants if v.values == record.best.values), None)
        if best is None:
            raise FormatError(f"the winner in the tuning record of {self.name} is not a candidate")
        return Tuned(
            record, answer.provenance, self._unlike(record), functools.partial(self.load, self.places[0], best)
        )

    def _unlike(self, record: TuningRecord) -> str:
        """Describe under which other circumstances an answer was measured, if it was."""
        product, processors, driver = self._circumstances
        if self.far is not None:
            return ""
        if record.by == "bounds":
            return f"it was ranked by lower bounds for {record.device}, not measured"
        if (record.device, record.processors) != (product, processors):
            return (
                f"it was measured on {record.device} ({record.processors} processors), but this is {product} "
                f"({processors} processors)"
            )
        return f"it was measured with {record.driver}, but this is {driver}" if record.driver != driver else ""


def _record(artifact: Artifact) -> TuningRecord:
    return TuningRecord.of_json(artifact.data)


def driver_of(device: Device) -> str:
    """Return the tool that generates and runs a device's code, with its version: the driver's CUDA version, or LLVM."""
    return f"CUDA {dotted(open_driver().version)}" if device.is_gpu else processor().llvm


def _peaks(on: str, places: tuple[Device, ...] = ()) -> Peaks:
    from cujit.profile import peaks  # start-up: an answer that is there needs no profile

    if not isinstance(on, str):
        raise OptionError(f"on is {spell(on)}, expected the name of a GPU", help="on='H200'")
    if any(place.is_gpu for place in places):
        raise OptionError(
            f"on={spell(on)} applies only if there is no such GPU, but {places[0].name} is one", help="remove on"
        )
    return peaks(on)


def _places(device: Any) -> tuple[Device, ...]:
    places = tuple(map(resolve_device, device)) if isinstance(device, list | tuple) else (resolve_device(device),)
    if not places or len(set(places)) < len(places):
        raise OptionError(f"device is {spell(device)}, expected at least one device and no duplicates")
    first = places[0]
    for place in places:
        if (place.product, place.limits.processors) != (first.product, first.limits.processors):
            raise OptionError(
                f"{spell(place)} is a different model than {spell(first)}, so their times can't be compared"
            )
        if place.backend.watchers and not place.is_gpu:  # of a GPU that is emulated, they say nothing anyway
            raise OptionError(f"{place.name} checks or observes its launches, so their times aren't meaningful")
    return places


def _mode() -> str:
    chosen = os.environ.get("CUJIT_TUNE") or "auto"
    if chosen not in _MODES:
        raise OptionError(
            f"CUJIT_TUNE is {spell(chosen)}, expected {', '.join(_MODES)}",
            help="CUJIT_TUNE=never",
            code="environment-value",
        )
    return chosen
