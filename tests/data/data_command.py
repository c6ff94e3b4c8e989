"""`fedotp data` in this process."""

from typer.testing import CliRunner, Result

from fedotp.cli import app


def run(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)], input=answer, env={"COLUMNS": "200"})


def ok(*arguments: object, answer: str = "") -> str:
    result = run(*arguments, answer=answer)
    assert result.exit_code == 0, result.output
    return result.stdout
