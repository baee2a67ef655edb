/** The worker in which the model runs. */
import "inversespec-edge-runtime/worker";
