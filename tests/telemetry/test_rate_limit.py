"""Work that others may cause at any rate gets a part of the time, one piece after another."""

from webhook.telemetry.rate_limit import TimeShare


def test_work_that_nobody_asks_for_any_more_keeps_no_turn_from_the_others() -> None:
    """A pod that became small before its turn stayed first, and no other large pod of its node was read again."""
    now = [0.0]
    share = TimeShare(lambda: now[0])

    def look(*names: str) -> list[str]:
        done = []
        for name in names:
            if share.is_next(name):
                with share.spent(name):
                    now[0] += 0.5
                done.append(name)
        share.forget()
        return done

    assert look("first", "second", "third") == ["first"]
    now[0] += 5.0
    assert look("third", "fourth") == []  # it is the turn of the second, which has ended meanwhile
    assert look("third", "fourth") == ["third"]
    assert look("fourth") == []  # there is no time left
    now[0] += 5.0
    assert look("fourth") == ["fourth"]
