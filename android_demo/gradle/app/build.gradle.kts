plugins {
    alias(libs.plugins.android.application)
}

val sources = rootDir.resolve("../app/src/main")

android {
    namespace = "inversespec.app"
    compileSdk = 36

    defaultConfig {
        applicationId = "inversespec.app"
        minSdk = 26
        targetSdk = 36
        versionCode = 100
        versionName = "0.2.0"
        ndk { abiFilters += listOf("arm64-v8a", "x86_64") }
    }

    sourceSets["main"].apply {
        manifest.srcFile(sources.resolve("AndroidManifest.xml"))
        kotlin.directories.add(sources.resolve("kotlin").path)
        res.directories.add(sources.resolve("res").path)
        // The tiny bundle and the samples: run `make apk-assets` once in the root of the repository.
        assets.directories.add(rootDir.resolve("../build/assets").path)
    }
    // Plain http to the developer's machine.
    sourceSets["debug"].res.directories.add(rootDir.resolve("../app/src/debug/res").path)
    // Merged over the manifest of onnxruntime-android.
    for (type in listOf("debug", "release")) sourceSets[type].manifest.srcFile("no-telemetry.xml")

    buildTypes {
        release {
            isMinifyEnabled = true
            proguardFiles(getDefaultProguardFile("proguard-android-optimize.txt"))   // and the library's own
        }
    }

    compileOptions {
        sourceCompatibility = JavaVersion.VERSION_1_8
        targetCompatibility = JavaVersion.VERSION_1_8
    }
}

dependencies {
    implementation(libs.edge.runtime)
}
