"""Report as JUnit XML, which CI systems read: one suite per level."""

from xml.etree import ElementTree

from nnrt_client.conformance.advice import advice
from nnrt_client.conformance.kit import Result
from nnrt_client.conformance.outcome import Verdict
from nnrt_client.conformance.report import Report
from nnrt_hdi.text import escape_for_terminal

# XML elements of tests that didn't pass.
_ELEMENTS = {
    Verdict.WRONG: "failure",
    Verdict.FAILED: "failure",
    Verdict.CRASHED: "error",
    Verdict.REFUSED: "skipped",
    Verdict.UNTRIED: "skipped",
}


def junit_xml(report: Report) -> bytes:
    """Return the report as the bytes of a JUnit XML file."""
    suites = ElementTree.Element("testsuites", name=escape_for_terminal(f"nnrt conformance {report.device}"))
    for level in report.counts():
        results = [result for result in report.results if result.trial.level is level]
        kinds = [_ELEMENTS.get(result.outcome.verdict) for result in results]
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=level.value,
            tests=str(len(results)),
            failures=str(kinds.count("failure")),
            errors=str(kinds.count("error")),
            skipped=str(kinds.count("skipped")),
            time=f"{sum(result.seconds for result in results):.3f}",
        )
        for result in results:
            _add(suite, result)
    ElementTree.indent(suites)
    file: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return file


def _add(suite: ElementTree.Element, result: Result) -> None:
    trial, outcome = result.trial, result.outcome
    case = ElementTree.SubElement(
        suite, "testcase", classname=trial.level.value, name=trial.name, time=f"{result.seconds:.4f}"
    )
    if element := _ELEMENTS.get(outcome.verdict):
        # XML 1.0 allows no control characters.
        message = escape_for_terminal(outcome.reason)
        ElementTree.SubElement(case, element, message=message, type=outcome.verdict.value).text = advice(result)
