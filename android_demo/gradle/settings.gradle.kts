// For Android Studio: the sources of ../app and ../edge-runtime as a Gradle project. CI does not build this (README.md).
pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositoriesMode.set(RepositoriesMode.FAIL_ON_PROJECT_REPOS)
    repositories {
        google()
        mavenCentral()
    }
}

rootProject.name = "inverse-speculation"
include(":app", ":edge-runtime")
