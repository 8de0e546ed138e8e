from record_past import differences, render


def test_a_release_is_recorded_by_what_differs_from_the_next() -> None:
    newer = {"arguments": {"a": ["int", "1"], "b": ["str", "''"]}, "listener": ["port"]}
    older = {"arguments": {"a": ["int", "2"], "c": ["bool", "False"]}, "listener": ["port"]}
    found = differences(newer, older)
    # A default alone is for people; what is gone is null.
    assert found == {"arguments": {"b": None, "c": ["bool", "False"]}}
    assert render({"0.1": found}) == (
        '{\n "0.1": {\n  "arguments": {"b": null, "c": ["bool", "False"]}\n }\n}\n'
    )
    words = ({"words": {"load": ["auto", "pt"]}}, {"words": {"load": ["auto", "np"]}})
    assert differences(*words) == {"words": {"load": ["auto", "np"]}}
