#!/usr/bin/env python3
"""What the pages say that can be checked: lengths, links, paths, figures, and the example that is compiled."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md", "tools/README.md", "tools/results/README.md",
         "tools/triton_peer/README.md", "templates/README.md", "tests/fuzz/README.md", "src/backend/emulator/README.md"]
# Numbers that are no measurements.
VERSIONS = r"(Debian|Ubuntu|CUDA|C\+\+|Version|Python) ?[\d.]+"
NUMBER = r"\d+(?:\.\d+)?"
FIGURE = rf"(?<![\w.])(?:{NUMBER}(?= to {NUMBER} (?:ms|us|%|TFLOP))|{NUMBER}(?= (?:ms|us|%|TFLOP))|\d+\.\d+|\d+x\d+x\d+)(?![\w])"


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def without_code(page):
    """Without blocks of code, fenced or indented."""
    return re.sub(r"(?m)^    .*$", "", re.sub(r"(?s)```.*?```", "", page))


def figures(page):
    return re.findall(FIGURE, re.sub(VERSIONS, "", without_code(page)))


class Docs(unittest.TestCase):
    def test_the_pages_are_short(self):
        self.assertLessEqual(len(text("README.md").split()), 1000)
        self.assertLessEqual(len(text(".github/CONTRIBUTING.md").split()), 900)

    def test_examples_are_short_and_the_first_one_is_the_first_page_s(self):
        examples = sorted((ROOT / "tools/examples").glob("*.c*"))
        self.assertEqual(len(examples), 6)
        for example in examples:
            self.assertLessEqual(len(example.read_text().splitlines()), 40, example)
            self.assertEqual(set(re.findall(r'#include "(.*)"|#include <(?!jitgemm/jitgemm\.h(?:pp)?>)(.*/.*)>', example.read_text())), set())
        block = re.search(r"(?s)```cpp\n(.*?)```", text("README.md"))
        self.assertEqual(block[1], text("tools/examples/first_gemm.cpp"))
        excerpt = re.search(r"(?s)```c\n(.*?)```", text("README.md"))[1].splitlines()
        lines = text("tools/examples/first_gemm.c").splitlines()
        self.assertEqual(excerpt, [line for line in lines if line in excerpt])

    def test_what_a_figure_is(self):
        page = "Ubuntu 24.04, C++20: 1.214 or 2 to 3 ms, 5 us more, 7 %, 300 shapes, 16x8x4\n    0.5 in code\n```\n9.9\n```\nx.y 1.5."
        self.assertEqual(figures(page), ["1.214", "2", "3", "5", "7", "16x8x4", "1.5"])

    def test_the_first_page_quotes_the_record_and_has_no_other_figures(self):
        section = re.search(r"(?s)\n## In short\n.*?\n## ", text("tools/results/README.md"))[0]
        sentences = re.findall(r"(?m)^- (.*)$", section)
        self.assertEqual(len(sentences), 4)
        page = text("README.md")
        for sentence in sentences:
            page, count = re.subn(r"\s+".join(map(re.escape, sentence.split())), "", page)
            self.assertEqual(count, 1, f"README.md is to say, as tools/results/README.md does: {sentence}")
        self.assertEqual(figures(page), [], "README.md has a figure that tools/results/README.md does not write for it")

    def test_links_lead_somewhere(self):
        count = 0
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text(page)):
                if "://" not in target:
                    count += 1
                    self.assertTrue(((ROOT / page).parent / target).exists(), f"{page}: {target}")
        self.assertGreater(count, 20)

    def test_paths_are_there(self):
        """Of the tree, in backticks: `src/core/types.cpp`, `templates/multiply_*.cuh`."""
        count = 0
        for page in PAGES:
            for path in re.findall(r"`((?:src|include|templates|tests|tools)/[\w./*]*)`", text(page)):
                count += 1
                self.assertTrue(list(ROOT.glob(path.rstrip("/"))), f"{page}: {path}")
        self.assertGreater(count, 40)

    def test_the_lists_of_activations_are_whole(self):
        body = re.search(r"(?s)enum class Activation .*?\{(.*?)\};", text("include/jitgemm/types.hpp"))[1]
        names = re.findall(r"(?m)^  (\w+),", body)
        self.assertGreater(len(names), 5)
        self.assertEqual(names[0], "none")
        listed = re.search(r"(?s)\nActivations: ([\w, \n]+)\.", text("README.md"))[1]
        self.assertEqual(re.split(r",\s+", listed), names[1:])
        table = re.search(r"(?s)\n\| activation \| as computed \|\n\| --- \| --- \|\n(.*?)\n\n", text("templates/README.md"))[1]
        rows = [name for row in table.splitlines() for name in row.split("|")[1].strip().split(", ")]
        self.assertEqual(rows, names)
        for table in ("src/core/activations.cpp", "tests/activations.hpp"):
            self.assertEqual(re.findall(r"(?m)^ *\S*\{?\.?(?:activation = )?Activation::(\w+),", text(table)), names, table)

    def test_each_template_is_explained(self):
        page = text("templates/README.md")
        for template in (ROOT / "templates").glob("*.cu*"):
            family = re.sub(r"_(sm\d+|mma|f32|f64)\.", "_*.", template.name)
            self.assertTrue(f"`{template.name}`" in page or f"`{family}`" in page, template.name)

    def test_sections_of_the_notebook_are_there(self):
        sections = set(re.findall(r"(?m)^## (\d+)\.", text("tools/results/NOTES.md")))
        count = 0
        for folder in ("src", "templates", "include", "tools", "tests"):
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".cpp", ".hpp", ".cuh", ".in", ".h", ".py", ".md") or path.name == "summary.txt":
                    for number in re.findall(r"NOTES\.md, (\d+)", path.read_text(encoding="utf-8")):
                        count += 1
                        self.assertIn(number, sections, path)
        self.assertGreater(count, 20)

    def test_what_the_notebook_names_is_there_or_of_a_commit(self):
        files = re.findall(r"\b(h[12]00/[\w/]+\.csv)( of [0-9a-f]{7})?", text("tools/results/NOTES.md"))
        self.assertGreater(len(files), 10)
        for file, commit in files:
            self.assertTrue(commit or (ROOT / "tools/results" / file).exists(), file)

    def test_environment_variables_and_scripts_are_explained(self):
        page = text("tools/README.md")
        code = "".join(path.read_text() for folder in ("src", "tools/jitgemm") for path in (ROOT / folder).rglob("*.[ch]pp"))
        variables = set(re.findall(r'"(JITGEMM_[A-Z_]+)"', code))
        self.assertGreater(len(variables), 10)
        for variable in variables:
            self.assertIn(f"| `{variable}` |", page)
        for script in [*(ROOT / "tools").glob("*.sh"), *(ROOT / "tools").glob("*.py")]:
            self.assertIn(f"`{script.name}`", page)


if __name__ == "__main__":
    unittest.main()
