"""`headwater up` is read the same by its quick parser and by Typer, and its config is what was asked for."""

from pathlib import Path
from typing import Any

import pytest
import typer

from headwater.cli import up, up_command
from headwater.config import BrokerConfig, ConfigError

WELL_FORMED = [
    [],
    ["--port", "9093"],
    ["--port=0", "--host=0.0.0.0"],
    ["--data", "/d", "--config", "/c.toml", "--json"],
    ["-o", "num.partitions=3", "-o", "broker.rack=a=b"],
]


@pytest.mark.parametrize("arguments", WELL_FORMED)
def test_both_parsers_agree(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[up.UpOptions] = []

    def run(options: up.UpOptions) -> int:
        ran.append(options)
        return 0

    monkeypatch.setattr(up, "run", run)
    command: Any = typer.main.get_command(up_command.app)
    with pytest.raises(SystemExit):
        command(arguments)
    assert ran == [up.parse_plain(arguments)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--port"],
        ["--port", "x"],
        ["--port", "65536"],
        ["--port", "--data"],
        ["--prot", "1"],
        ["9092"],
        ["-o"],
        ["-oa=b"],
        ["--json=yes"],
    ],
)
def test_everything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert up.parse_plain(arguments) is None


def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> BrokerConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return up.broker_config(up.UpOptions(**options))


def listener(config: BrokerConfig) -> str:
    return ",".join(map(str, config.listeners))


def test_by_default_it_listens_on_loopback_and_keeps_data_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = config(tmp_path, monkeypatch)
    assert listener(made) == "PLAINTEXT://127.0.0.1:9092"
    assert made.log_dirs == (str(tmp_path / "headwater"),)


def test_the_file_decides_over_defaults_and_the_command_line_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1234\nlog.dirs=/file\nnum.partitions=3\n")
    from_file = config(tmp_path, monkeypatch, config=str(file))
    assert (listener(from_file), from_file.log_dirs, from_file.num_partitions) == (
        "PLAINTEXT://127.0.0.1:1234",
        ("/file",),
        3,
    )
    over_it = config(tmp_path, monkeypatch, config=str(file), port=99, data="/mine", settings=("num.partitions=5",))
    assert (listener(over_it), over_it.log_dirs, over_it.num_partitions) == (
        "PLAINTEXT://127.0.0.1:99",
        ("/mine",),
        5,
    )


def test_a_file_with_log_dir_alone_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dir=/one\n")
    made = config(tmp_path, monkeypatch, config=str(file))
    assert made.log_dirs == ("/one",)
    assert listener(made) == "PLAINTEXT://127.0.0.1:9092"


def test_an_ipv6_host_gets_its_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listener(config(tmp_path, monkeypatch, host="::1", port=1)) == "PLAINTEXT://[::1]:1"


@pytest.mark.parametrize("setting", ["novalue", "=3", "num.partition=3"])
def test_a_bad_setting_is_a_config_error(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        config(tmp_path, monkeypatch, settings=(setting,))


def test_without_xdg_the_data_folder_is_under_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert up.default_data_dir({}) == "/home/ann/.local/share/headwater"
    assert up.default_data_dir({"XDG_DATA_HOME": "relative"}) == "/home/ann/.local/share/headwater"
