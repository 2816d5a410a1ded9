"""The `holdfast pipeline` commands: run by name, or as a command with the pipeline's own options."""

import contextlib
import inspect
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from typer.main import get_command

from holdfast.base.errors import HoldfastError, NotFound
from holdfast.cli.open_store import folder_of, remote_at
from holdfast.cli.options import JsonOption, UsageError, help_if_alone, join_help_lines
from holdfast.cli.output import error_console, make_table, show, write_json
from holdfast.cli.pipeline.failures import reason_of
from holdfast.cli.pipeline.options import REQUIRED, PipelineOption, options_of, parse_pairs
from holdfast.cli.pipeline.output import result_json, show_result
from holdfast.cli.pipeline.remote import raw_options, run_on_server, written_options
from holdfast.cli.target import SparkDataOption, SparkTarget, StoreUrl, add_urls
from holdfast.pipeline_runs import noted
from holdfast.spark.pipelines import PIPELINES, Result, load_pipeline

__all__ = ["pipeline_commands"]

Run = Callable[..., Result]

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        envvar="SPARK_MASTER",
        show_default="all cores of this machine",
        help="Run Spark here: local[4], spark://host:7077, sc://host:15002.",
    ),
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="K=V", help="A Spark setting; may be repeated.")
]

pipeline_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Run Spark on a store: archive, replay, report, verify."
)


@pipeline_commands.command("list")
def list_pipelines(
    options: Annotated[
        bool, typer.Option("--options", help="Include the options of each pipeline, as JSON; needs Spark.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the pipelines."""
    if as_json or options:
        rows = [
            {
                "name": name,
                "module": each.module,
                "description": each.description,
                **({"options": _options_json(name)} if options else {}),
            }
            for name, each in PIPELINES.items()
        ]
        write_json({"pipelines": rows})
        return
    table = make_table("pipeline", "description")
    for name, pipeline in PIPELINES.items():
        table.add_row(name, pipeline.description)
    show(table)


@pipeline_commands.command("run")
def run_pipeline(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The pipeline; see holdfast pipeline list.")],
    data: SparkDataOption = Path("data"),
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", metavar="K=V", help="A pipeline option; may be repeated.")
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run a pipeline by its name.

    With --url it runs on the server's machine, which must have Spark; paths are paths of that machine.
    """
    with remote_at(data) as remote:
        if remote is not None:
            _check_local(master, conf)
            return run_on_server(remote, name, raw_options(option or []), as_json=as_json)
    run = _load(name)
    arguments = parse_pairs(name, options_of(run), option or [])
    return _run(name, run, data, arguments, master=master, conf=conf, as_json=as_json)


def _add_shorthand(name: str, description: str) -> None:
    """Add a command for a pipeline, which is imported (and Spark with it) only when the command is called."""

    def forward(context: typer.Context) -> Any:
        command = get_command(_typed_command(name))
        add_urls(command)
        join_help_lines(command)
        with command.make_context(name, list(context.args), parent=context.parent) as inner:
            return command.invoke(inner)

    pipeline_commands.command(
        name,
        help=description,
        # All arguments, and --help, are for the command that is created then.
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    )(forward)


for _name, _pipeline in PIPELINES.items():
    _add_shorthand(_name, _pipeline.description)


def _typed_command(name: str) -> typer.Typer:
    """Return the command of a pipeline: its own options, then the common ones."""
    run = _load(name)
    options = options_of(run)

    def command(
        data: SparkDataOption = Path("data"),
        master: MasterOption = None,
        conf: ConfOption = None,
        as_json: JsonOption = False,
    ) -> int:
        raise NotImplementedError  # only its parameters are used

    def typed(**given: Any) -> int:
        arguments = _parsed(options, given)
        with remote_at(given["data"]) as remote:
            if remote is not None:
                _check_local(given["master"], given["conf"])
                return run_on_server(remote, name, written_options(arguments), as_json=given["as_json"])
        common = {key: given[key] for key in ("master", "conf", "as_json")}
        return _run(name, run, given["data"], arguments, **common)

    own = [_parameter(option) for option in options.values()]
    common = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
    ]
    # typer reads a function's signature, so one is made for it.
    typed.__signature__ = inspect.Signature([*own, *common])  # type: ignore[attr-defined]
    typed.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *common)}
    typed.__doc__ = inspect.cleandoc(run.__doc__ or PIPELINES[name].description)
    made = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    made.command(name)(typed)
    return made


def _parameter(option: PipelineOption) -> inspect.Parameter:
    """Return the option for typer. All except flags are text, so that `pipeline run` reports the same errors."""
    required = option.default is REQUIRED
    # The text of an enum or a path is what a user types.
    default = None if required or option.default is None else str(option.default)
    kind: Any
    if option.kind is bool and not option.many:
        on_off = f"{option.spelled}/{option.spelled.replace('--', '--no-', 1)}" if option.default else option.spelled
        kind = Annotated[bool, typer.Option(on_off, help=option.help)]
        return _keyword(option.name, kind, REQUIRED if required else bool(option.default))
    spoken = typer.Option(
        option.spelled,
        metavar=option.metavar,
        help=option.help + (" May be repeated." if option.many else ""),
        show_default=default if default is not None and not option.many else False,
    )
    kind = Annotated[list[str] if required else list[str] | None, spoken]
    if not option.many:
        kind = Annotated[str if required else str | None, spoken]
    return _keyword(option.name, kind, REQUIRED if required else None)


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _parsed(options: Mapping[str, PipelineOption], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the typed options, converted; the others are left to the defaults of `run`."""
    found: dict[str, Any] = {}
    for name, option in options.items():
        value = given[name]
        if isinstance(value, bool):
            found[name] = value
        elif isinstance(value, list | tuple):
            if value:
                found[name] = [option.parse(text) for text in value]
        elif value is not None:
            found[name] = option.parse(value)
    return found


def _check_local(master: str | None, conf: list[str] | None) -> None:
    if conf or (master and not os.environ.get("SPARK_MASTER")):
        raise UsageError("--master and --conf do not work with --url: the server chooses where Spark runs")


def _options_json(name: str) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "help": one.help,
            "kind": one.metavar,
            "words": list(one.words),
            "default": None if one.default is REQUIRED or one.default is None else str(one.default),
            "required": one.default is REQUIRED,
            "many": one.many,
        }
        for one in options_of(_load(name)).values()
    ]


def _load(name: str) -> Run:
    try:
        return load_pipeline(name)
    except ModuleNotFoundError as error:
        raise _no_spark(error) from error


def _no_spark(error: ModuleNotFoundError) -> Exception:
    missing = (error.name or "").split(".")[0]
    if missing == "holdfast":  # a fault of Holdfast, not a missing package
        return error
    return NotFound(f'pipelines need Spark: pip install "holdfast[spark]" ({missing} is not installed)')


def _run(
    name: str,
    run: Run,
    data: SparkTarget,
    arguments: Mapping[str, Any],
    *,
    master: str | None,
    conf: list[str] | None,
    as_json: bool,
) -> int:
    from holdfast.spark.store_access import is_replica_folder  # noqa: PLC0415 - not for --help

    place = data.url if isinstance(data, StoreUrl) else str(folder_of(data).absolute())
    folder = Path(place)
    if isinstance(data, StoreUrl) or is_replica_folder(folder):  # runs are noted in a store, whose folder is elsewhere
        result = _result(name, run, place, arguments, master=master, conf=conf, quiet=as_json)
    else:
        with noted(folder, name, arguments) as outcome:
            result = _result(name, run, place, arguments, master=master, conf=conf, quiet=as_json)
            outcome.update(result_json(name, result))
    show_result(name, result, as_json=as_json)
    return 0 if result.ok else 1


def _result(
    name: str,
    run: Run,
    place: str,
    arguments: Mapping[str, Any],
    *,
    master: str | None,
    conf: list[str] | None,
    quiet: bool,
) -> Result:
    settings = _settings(conf or [])
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - all of these need Spark
        from pyspark.errors import PySparkException  # noqa: PLC0415

        from holdfast.spark.progress import progress  # noqa: PLC0415
        from holdfast.spark.session import session  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _no_spark(error) from error
    console = error_console()
    quiet = quiet or not console.is_terminal
    interrupted = threading.Event()
    try:
        if quiet:
            spark = session(master, app=f"holdfast {name}", **settings)
        else:
            with console.status("starting Spark"):
                spark = session(master, app=f"holdfast {name}", **settings)
        with _plain_interrupts(interrupted), progress(spark, name, shown=not quiet, console=console):
            # The workers may have another current folder.
            return run(spark, place, **arguments)
    except (PySparkException, Py4JError) as error:
        if interrupted.is_set():  # Ctrl-C interrupted a call to Java, whose error is a consequence
            raise KeyboardInterrupt from None
        raise HoldfastError(f"{name}: {reason_of(error)}") from error


@contextlib.contextmanager
def _plain_interrupts(interrupted: threading.Event) -> Iterator[None]:
    """Let Ctrl-C end a pipeline as it ends any command, and set `interrupted`.

    Spark's own handler calls Java, often in the middle of a call to Java, and then logs both at length.
    """
    root, silence = logging.getLogger(), logging.NullHandler()
    root.addHandler(silence)
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()  # only the main thread may set handlers
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
        root.removeHandler(silence)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip().startswith("spark."):
            raise UsageError(f"--conf {pair!r} is not a Spark setting: write it as spark.driver.memory=4g")
        settings[key.strip()] = value
    return settings
