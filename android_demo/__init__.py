"""Build scripts of the Android app and benchmark of the Kotlin library; run from the repository's root."""
