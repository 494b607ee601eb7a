#!/usr/bin/env python3
"""What `jitgemm bench` and `jitgemm seed` have measured, as pages, tables and figures.

  tools/report.py record tools/results/h200        writes tools/results/README.md, and its picture
  tools/report.py corpora tools/results/h200 --html report.html    each shape, as one page with figures
  tools/report.py corpora CSV...                   a line a corpus
  tools/report.py published CSV                    beside what CUDA-L2 publishes of the same shapes
  tools/report.py types CSV... > types.md          what tools/types_table.sh has measured
  tools/report.py epilogues CSV... > epilogues.md  what tools/epilogues_table.sh has measured
  tools/report.py parallel CSV > parallel.md       what `jitgemm parallel bench` has measured
  tools/report.py seeds RUNDIR OUT.md              beside the numbers of the seed documents

Each has --help. Figures need matplotlib, nothing else does.
"""

import sys

sys.dont_write_bytecode = True

from reports import corpora, epilogues, parallel, published, record, seeds, types  # noqa: E402

COMMANDS = {"record": record.main, "corpora": corpora.main, "published": published.main, "types": types.main, "epilogues": epilogues.main,
            "parallel": parallel.main, "seeds": seeds.main}


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in ("-h", "--help"):
        print(__doc__.strip())
    elif name in COMMANDS:
        return COMMANDS[name](sys.argv[2:])
    else:
        sys.exit(f"report.py: error: {f'no command {name}' if name else 'no command'}: name one of {', '.join(COMMANDS)}, or --help")


if __name__ == "__main__":
    sys.exit(main())
