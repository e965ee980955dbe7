"""Sequential selection algorithms of earlier papers, in memory, to compare against.

They visit the users one after another, so they cannot run as a Beam pipeline; their noise comes from a seeded
floating-point generator. **They are comparison baselines: do not release their output about real people.**
"""

from .greedy_updates import greedy_updates_weights as greedy_updates_weights
from .greedy_updates import select_greedy_updates as select_greedy_updates
from .policy_gaussian import policy_gaussian_weights as policy_gaussian_weights
from .policy_gaussian import select_policy_gaussian as select_policy_gaussian
from .release import Selection as Selection
from .user_sets import UserSets as UserSets
from .user_sets import shuffled_sets as shuffled_sets
from .user_sets import user_sets_from_pairs as user_sets_from_pairs
