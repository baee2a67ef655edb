// For Android Studio: the sources of ../app as a Gradle project, with the library from ../build/maven. CI does not build this (README.md).
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
        // The library: run `make aar` once in the root of the repository.
        maven { url = uri("../build/maven") }
    }
}

rootProject.name = "inverse-speculation"
include(":app")
