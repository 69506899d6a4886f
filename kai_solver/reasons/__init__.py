"""Texts that users of KAI match on, in the words of KAI, each made in one place.

``pending``: why a gang stays pending, from the actions' refusals to the text of event and condition. ``refusals``: why
one action does nothing for a gang. ``attempt``, ``node_reasons``, ``domain_reasons``: why there is no room, as KAI's
own attempt reports it, node by node and domain by domain; ``looks``: what one look at the nodes serves. ``evictions``:
the text on an evicted pod. ``events``: the events of a whole plan.
"""
