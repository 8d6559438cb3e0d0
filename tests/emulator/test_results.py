"""What the driver's functions answer, by name and number."""

from __future__ import annotations

from cuda.bindings import driver

from cujit.emulator.results import Result


def test_every_answer_has_the_number_that_the_bindings_know() -> None:
    assert {result.spelled: int(result) for result in Result} == {each.name: int(each) for each in driver.CUresult}


def test_a_name_says_what_it_means() -> None:
    assert Result.ILLEGAL_ADDRESS.sentence == "illegal address"
