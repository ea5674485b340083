"""The changelog of fragments, the files for programs, and the checks of a release."""

import zipfile
from pathlib import Path

import agents
import changelog
import pytest
import release

import skvnce

ROOT = Path(__file__).parents[1]
OLD = """# Changelog

## 0.2.0 (unreleased)

- old

## 0.1.0 (2026-01-02)

- first
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "skvnce").mkdir()
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "skvnce" / "_version.py").write_text('__version__ = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(OLD)
    (tmp_path / "changelog.d" / "README.md").write_text("# No change\n")
    return tmp_path


def add(project, name, text):
    (project / "changelog.d" / name).write_text(text)


class TestAgents:
    @pytest.mark.parametrize("name", agents.FILES)
    def test_the_committed_files_are_those_of_the_script(self, name):
        assert (ROOT / name).read_text() == agents.FILES[name](), (
            "write them again: python tools/agents.py"
        )

    def test_all_public_names_have_a_line(self):
        text = agents.agents()
        for name in set(skvnce.__all__) - {"__version__"}:
            assert f"- `{name}`: " in text or f"### skvnce.{name}\n" in text
        lines = [line for line in text.splitlines() if line.startswith("- `")]
        assert len(lines) > 60 and all(len(line.split(": ", 1)[1]) for line in lines)
        assert "skvnce.pooling.pool_models`: Pool the" in agents.llms()


class TestChangelog:
    def test_the_committed_changes_can_be_merged(self):
        changes = [text for _, text in changelog.fragments()]
        page = (ROOT / "CHANGELOG.md").read_text()
        text = changelog.merged(page, changes, changelog.version())
        assert all(change in text for change in changes)
        assert changelog.version() == skvnce.__version__

    def test_changes_come_first_by_name_and_their_files_go(self, project, capsys):
        add(project, "b.md", "- beta\n")
        add(project, "a.md", "- alpha\n  goes on\n- alef\n")
        assert changelog.main([], project) == 0
        assert capsys.readouterr().out == "- alpha\n  goes on\n- alef\n- beta\n"
        assert (project / "CHANGELOG.md").read_text() == OLD
        changelog.main(["--merge"], project)
        new = OLD.replace("- old", "- alpha\n  goes on\n- alef\n- beta\n- old")
        assert (project / "CHANGELOG.md").read_text() == new
        left = [path.name for path in (project / "changelog.d").iterdir()]
        assert left == ["README.md"]

    def test_a_release_has_a_date_and_the_next_version_a_section(self, project):
        changelog.main(["--merge", "--date", "2027-01-31"], project)
        page = project / "CHANGELOG.md"
        assert page.read_text() == OLD.replace("unreleased", "2027-01-31")
        add(project, "a.md", "- new\n")
        message = r"0.2.0 was released .* raise __version__"
        with pytest.raises(ValueError, match=message):
            changelog.main(["--merge"], project)
        (project / "skvnce" / "_version.py").write_text('__version__ = "0.3.0"\n')
        changelog.main(["--merge"], project)
        assert page.read_text().startswith(
            "# Changelog\n\n## 0.3.0 (unreleased)\n\n- new\n\n## 0.2.0 (2027-01-31)\n"
        )


class TestRelease:
    def test_each_extra_is_known(self):
        assert set(release.ENABLED) == {"", *release.extras()}

    def test_this_version_is_that_of_the_changelog(self):
        assert release.problems(ROOT) == []

    def test_problems_of_a_release_are_named(self, project):
        add(project, "a.md", "- new\n")
        assert release.problems(project) == []
        found = " ".join(release.problems(project, is_dry=False))
        for word in ("no date", "not merged", "not clean"):
            assert word in found
        (project / "skvnce" / "_version.py").write_text('__version__ = "0.3.0"\n')
        [found] = release.problems(project)
        assert found == "the version is 0.3.0, and that of CHANGELOG.md 0.2.0"

    def test_an_installed_wheel_is_imported(self, tmp_path, monkeypatch):
        wheel = tmp_path / "skvnce-9-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("skvnce/__init__.py", "own = True\n")
            file.writestr("skvnce-9.dist-info/METADATA", "Name: skvnce\nVersion: 9\n")
            file.writestr(
                "skvnce-9.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n"
            )
            file.writestr("skvnce-9.dist-info/RECORD", "")
        monkeypatch.setattr(release, "extras", lambda: ["good"])
        monkeypatch.setattr(release, "ENABLED", {"": ["skvnce"], "good": ["numpy"]})
        release.check_cheaply(wheel, tmp_path)
        monkeypatch.setattr(release, "ENABLED", {"": ["skvnce.pooling"], "good": []})
        with pytest.raises(SystemExit, match="failed"):  # which the checkout has
            release.check_cheaply(wheel, tmp_path)
