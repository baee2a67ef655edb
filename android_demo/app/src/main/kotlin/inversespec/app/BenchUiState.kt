package inversespec.app

import inversespec.edge.PassCost

/** State of the Benchmark screen; [model] is the one that [points] were measured on. */
data class BenchUiState(
    val running: Boolean = false,
    val model: String = "",
    val points: List<PassCost> = emptyList(),
    val error: String? = null,
)
