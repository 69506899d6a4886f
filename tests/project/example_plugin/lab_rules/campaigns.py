"""A pod grouper: pods with the same label ``lab.example/campaign`` start together."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping import Group, Member

LABEL = "lab.example/campaign"


class CampaignGrouper:
    """Before all that ship (their priorities end at 1000)."""

    name = "lab-campaigns"
    priority = 2000

    def claim(self, member: Member) -> str | None:
        """Name the gang after the campaign."""
        campaign = member.stated(LABEL)
        return f"campaign-{campaign}" if campaign else None

    def group(self, members: Sequence[Member]) -> Group:
        """All or nothing."""
        return Group(min_member=len(members))
