"""Options that several commands have."""

from argparse import ArgumentParser, _MutuallyExclusiveGroup

STATUS = "Exit status: 0 nothing denied, 1 something denied, 2 unusable input or usage, 3 internal error."


def policy(parser: ArgumentParser) -> None:
    """Add `--policy`."""
    parser.add_argument(
        "--policy", metavar="PATH", help="file or folder; default: ./policies if it is there, else the sample"
    )


def facts(parser: ArgumentParser, *, needed: bool = False) -> _MutuallyExclusiveGroup:
    """Add `--facts`, in a group that other sources of facts may join."""
    group = parser.add_mutually_exclusive_group(required=needed)
    group.add_argument(
        "--facts", metavar="PATH", help="namespaces, nodes and so on, as kubectl get -o yaml prints them"
    )
    return group


def cluster(parser: ArgumentParser) -> None:
    """Add what says which cluster `--live` means."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="for --live; default: the pod's service account, else kubectl's"
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig")
