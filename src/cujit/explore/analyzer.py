"""Analysis of a scene, which is compiled, assembled, launched in a separate process, and profiled.

The analysis makes the same calls as the commands.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cujit.artifact import Artifact
from cujit.artifact.reading import allow_quotes
from cujit.compiler.backends.diagnostics import parse_log
from cujit.compiler.options.spelling import Spelling
from cujit.compiler.options.table import OPTIONS
from cujit.compiler.tiles import has_tile_kernels
from cujit.devices.launcher.saving import saved_launch
from cujit.devices.watch import Text
from cujit.errors import ArchError, CompileError, CujitError, OptionError, counted
from cujit.explore.fields import ArgumentField, fields_of
from cujit.explore.scene import TIMEOUT_S, LaunchLimits, Scene
from cujit.inspection.read import inspect
from cujit.kernel import Kernel
from cujit.loading import Module, jit
from cujit.machine import cpu
from cujit.occupancy.products import find_product
from cujit.profile.peaks import peaks
from cujit.program import Options, Source, compile
from cujit.report.listings import Listing
from cujit.report.report import ReportPage, of
from cujit.reproducer.running import Rerun, run_once
from cujit.values import attributes, dataclass, field, replace

_MOST_KERNELS = 200
"""Names that a page offers."""


@dataclass(frozen=True)
class Analysis:
    """The result of analyzing a scene.

    ``report`` is the report page, which contains only the messages if the source doesn't compile. ``kernels`` are the
    names of the image's kernels, and ``fields`` are the arguments of each. ``printed`` is the output of the kernel, and
    ``dropped_bytes`` is the number of further bytes that were not kept. ``seconds`` is the total time.

    Example::

        seen = cujit.explore.analyze(cujit.explore.Scene(CODE, kernel="axpy<float>"))
        print(seen.report.title, seen.kernels)
    """

    report: ReportPage
    is_compiled: bool = False
    is_counted: bool = False
    kernels: tuple[str, ...] = ()
    fields: Mapping[str, tuple[ArgumentField, ...]] = field(default_factory=dict, hash=False)
    printed: str = ""
    dropped_bytes: int = 0
    seconds: float = 0.0

    def record(self) -> dict[str, Any]:
        """Return the record of the report, and in ``explorer`` what it has no place for.

        Example::

            record = cujit.explore.analyze(cujit.explore.Scene("__global__ void k() {}\\n")).record()
            assert record["explorer"]["kernels"] == ["k"]
        """
        more = attributes(self, "is_compiled is_counted printed dropped_bytes seconds")
        fields = {name: [each.to_json() for each in those] for name, those in self.fields.items()}
        return {**self.report.record(), "explorer": {**more, "kernels": list(self.kernels), "fields": fields}}


def analyze(
    scene: Scene,
    *,
    path: str = "",
    timeout_s: float = TIMEOUT_S,
    memory_mib: int | None = None,
    trusted: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Analysis:
    """Compile a scene, launch it in a process apart, and report both; what goes wrong is in the report, at its line.

    Args:
        scene: what to look at.
        path: of the file that the source is of, beside which it looks for headers.
        timeout_s: how long the launch may run, in seconds.
        memory_mib: how much address space the process of the launch may have, in MiB; None as for ``reproducer.run``.
        trusted: launch also where the system has no filter of system calls.
        say: is called with what is being done.

    Example::

        seen = cujit.explore.analyze(cujit.explore.Scene("__global__ void k() { oops; }\\n"))
        print(seen.report.errors)
    """
    return _Analyzer(scene, path, LaunchLimits(timeout_s, memory_mib, trusted), say).seen()


def before(scene: Scene) -> Analysis:
    """Return the analysis of a source that was not compiled yet, which contains only the source."""
    return Analysis(ReportPage(scene.name, (), (), (_own_listing(scene),)))


def _own_listing(scene: Scene) -> Listing:
    return Listing("source", scene.name, tuple(scene.source.splitlines()))


class _Analyzer:
    """One analysis of a scene, with the errors so far."""

    def __init__(self, scene: Scene, path: str, limits: LaunchLimits, say: Callable[[str], None]) -> None:
        self.scene = scene
        self.path = path
        self.limits = limits
        self.say = say
        self.errors: list[CujitError] = []
        self.notes: list[str] = []

    def seen(self) -> Analysis:
        begin = time.perf_counter()
        scene = self.scene
        try:
            self.say("compiling")
            source, options = self._source(), self._options()
            image = compile(source, to="ptx", arch=scene.target().virtual, names=self._names(), options=options)
        except CujitError as e:
            page = ReportPage(scene.name, (), (), (_own_listing(scene),), (e,))
            return Analysis(page, seconds=time.perf_counter() - begin)
        if warnings := parse_log(image.log):
            self.errors.append(CompileError("the compiler issued warnings", diagnostics=warnings))
        rerun = self._rerun(source, options) if scene.is_launched else None
        self.say("assembling")
        page = self._page(source, image, rerun)
        kernels = inspect(image).kernels[:_MOST_KERNELS]
        fields = {kernel.display: fields_of(kernel.signature, kernel.display, scene.source) for kernel in kernels}
        seen = Analysis(page, True, kernels=tuple(fields), fields=fields, seconds=time.perf_counter() - begin)
        if rerun is None:
            return seen
        is_counted = rerun.profile is not None and rerun.error is None
        return replace(seen, is_counted=is_counted, printed=rerun.printed, dropped_bytes=rerun.dropped_bytes)

    # -- what is compiled ---------------------------------------------------------------------------------------

    def _source(self) -> Source:
        scene = self.scene
        if scene.is_ir:
            return Source.nvvm(scene.source, name=scene.name)
        if self.path:
            allow_quotes(os.path.dirname(os.path.abspath(self.path)))  # the page shows headers beside the file
        return replace(Source.cuda(scene.source, name=scene.name), path=self.path)

    def _options(self) -> Options:
        options = self.scene.compiler_options()
        return options if self.scene.is_ir else Options.of({"lineinfo": True}, options)

    def _names(self) -> list[str]:
        return [self.scene.kernel] if "<" in self.scene.kernel else []

    # -- what is launched ---------------------------------------------------------------------------------------

    def _rerun(self, source: Source, options: Options) -> Rerun | None:
        """Launch the kernel in a separate process. If the launch fails or ends early, add an error to the report."""
        scene = self.scene
        try:
            device = cpu()
            module = jit(source, device=device, arch=scene.target(), names=self._names(), options=options)
            kernel = module[scene.kernel] if scene.kernel else self._only(module)
            launch = scene.launch_of(kernel)
            values = scene.values()
            placed = [device.array(value) if isinstance(value, np.ndarray) else value for value in values]
            saved = saved_launch(launch._entry, launch.shape, launch.stream, launch.options, placed)
            self.say("launching")
            rerun = run_once(saved, device="cpu", check=scene.check or None, profile=True, **vars(self.limits))
        except CujitError as e:
            self.errors.append(e)
            return None
        if rerun.error is not None:
            self.errors.append(rerun.error)
        if rerun.without_filter:
            self.notes.append(f"the launch could make any system call: {rerun.without_filter}")
        return rerun

    def _only(self, module: Module) -> Kernel:
        names = list(module)
        if len(names) != 1:
            raise OptionError(f"{self.scene.name} contains {counted(len(names), 'kernel')}", help="specify one of them")
        return module[names[0]]

    # -- what is shown ------------------------------------------------------------------------------------------

    def _page(self, source: Source, image: Artifact, rerun: Rerun | None) -> ReportPage:
        scene, arch = self.scene, self.scene.target()
        texts = {source.program_name: Text(scene.name, scene.source)}
        profile = rerun.profile if rerun is not None and rerun.error is None else None
        gpu = self._gpu()
        page = of(
            image,
            profile=() if profile is None else profile,
            on=gpu,
            arch=arch if arch.is_real else None,
            kernels=None if profile is not None else self._shown(image),
            texts=texts,
            errors=self.errors,
            title=scene.name if profile is None else f"{profile.name} of {scene.name}",
            assembler=self._assembler(),
        )
        listings = page.listings
        if not any(each.kind == "source" and each.name == scene.name for each in listings):
            listings = (_own_listing(scene), *listings)
        if has_tile_kernels(source):
            listings = (*listings, *self._tile_ir(source))
        block = scene.threads_of_block()
        on = self._bounded(gpu)
        kernels = tuple(replace(each, block=each.block or block, on=on) for each in page.kernels)
        return replace(page, listings=listings, kernels=kernels, notes=(*self.notes, *page.notes))

    def _tile_ir(self, source: Source) -> tuple[Listing, ...]:
        """List the Tile IR that the PTX was compiled from."""
        image = compile(source, to="tileir", names=self._names(), options=self._options())
        texts = {source.program_name: Text(self.scene.name, self.scene.source)}
        page = of(image, texts=texts)
        self.notes += page.notes
        return tuple(each for each in page.listings if each.kind == "tileir")

    def _assembler(self) -> dict[str, object]:
        """Return the options that the assembler accepts too."""
        options = self._options()
        return {name: options[name] for name in options if isinstance(OPTIONS[name].nvjitlink, Spelling)}

    def _shown(self, image: Artifact) -> list[str] | None:
        """Return the name of the chosen kernel in the image, or None for all kernels."""
        wanted = self.scene.kernel
        found = [k.name for k in inspect(image).kernels if wanted in (k.name, k.display)]
        found += [image.names[wanted]] if wanted in image.names else []
        return found or None

    def _gpu(self) -> str | None:
        """Return the GPU for lower bounds on the time: the selected GPU if it can run code for the requested
        architecture.
        """
        on = self.scene.on
        if not on:
            return None
        try:
            product = find_product(on)
        except CujitError as e:
            self.errors.append(e)
            return None
        arch = self.scene.target()
        if arch.is_real and not arch.runs_on(product.arch):
            self.notes.append(f"no bounds: {arch} does not run on {product}")
            return None
        return product.name

    def _bounded(self, gpu: str | None) -> str | None:
        """Return the GPU if its bounds are known; a note says so where they are not."""
        try:
            return gpu and peaks(gpu).name
        except ArchError as e:
            self.notes.append(f"no bounds: {e.message}")
            return None
