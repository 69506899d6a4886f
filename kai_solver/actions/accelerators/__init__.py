"""What makes a cycle fast and leaves its plan as it is: the outcome is the same as gang by gang and pod by pod.

- `runs`: identical gangs that follow each other in allocate are placed in one step.
- `predicted_order`: the order of gangs if each is served, sorted once instead of found gang by gang.
- `refused`: once a gang of every kind that waits was refused, so are the others, without an attempt.
- `swaps`: gangs of one pod each take the place of one victim that holds the same. `identical_pods` lists such victims
  in order; `reclaim_lookahead` says for how many swaps ahead a right to take holds.
- `resettling`: counts whether units could all be placed elsewhere before any of them leaves.
- `returning`: counts which evicted pods could return to where they ran.
"""
