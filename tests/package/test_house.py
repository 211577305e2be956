"""What the numbers of the house count."""

from collections import Counter

from house import House, circles, import_graph, methods, module_name, starts_of_threads


def test_circles_count_imports_for_types_and_within_functions() -> None:
    graph = import_graph(
        {
            "nnrt_client/a.py": "if TYPE_CHECKING:\n    from nnrt_client.b import B\n",
            "nnrt_client/b.py": "def f():\n    from .c import Deep\n",
            "nnrt_client/c/__init__.py": "from . import deep\n",
            "nnrt_client/c/deep.py": "import nnrt_client.a\nimport numpy\n",
            "nnrt_client/d.py": "from nnrt_client import a\n",
        }
    )
    assert graph["nnrt_client.d"] == {"nnrt_client.a"}
    assert circles(graph) == [["nnrt_client.a", "nnrt_client.b", "nnrt_client.c", "nnrt_client.c.deep"]]
    assert circles({**graph, "nnrt_client.a": set()}) == []


def test_a_module_of_a_backend_is_named_from_its_own_folder() -> None:
    assert (
        module_name("backends/reference/nnrt_backend_reference/kernels/__init__.py") == "nnrt_backend_reference.kernels"
    )
    assert module_name("nnrt_hdi/errors.py") == "nnrt_hdi.errors"


def test_a_property_is_one_method() -> None:
    text = (
        "class A:\n @property\n def x(self): ...\n @x.setter\n def x(self, x): ...\n async def f(self):\n  def g(): 1\n"
    )
    assert methods({"a.py": text}) == {"a.py A": 2}


def test_each_call_that_starts_a_thread_counts() -> None:
    text = "threading.Thread(target=f).start()\nThreadPoolExecutor(2)\nasyncio.start_thread\nThread\nTimer(1, f)\n"
    assert starts_of_threads({"a.py": text}) == {"a.py": 3}


def test_exceptions_only_go_down() -> None:
    house = House({"lines": 10}, {"lines": {"grown.py": 12, "shrunk.py": 20, "mended.py": 11}})
    house.rows("lines", Counter({"grown.py": 13, "shrunk.py": 15, "mended.py": 9, "new.py": 11, "small.py": 10}))
    assert house.excesses == ["lines: grown.py has 13, at most 12", "lines: new.py has 11, at most 10"]
    assert house.exceptions == {"lines": {"grown.py": 12, "shrunk.py": 15}}
