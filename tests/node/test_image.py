"""The image: the same tree makes the same one."""

from tests.node import product


def test_it_is_built_again_byte_by_byte() -> None:
    """The second build starts from another folder, with files of another time, and without a cache."""
    assert product.built_again() == product.digest(product.image())
