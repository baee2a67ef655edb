import org.jetbrains.kotlin.gradle.dsl.JvmTarget

plugins {
    alias(libs.plugins.kotlin.jvm)
    `java-library`
}

val sources = rootDir.resolve("../edge-runtime")
val payload = rootDir.resolve("../../payload")

java {
    sourceCompatibility = JavaVersion.VERSION_1_8
    targetCompatibility = JavaVersion.VERSION_1_8
}

kotlin {
    compilerOptions.jvmTarget = JvmTarget.JVM_1_8
    sourceSets["main"].kotlin.srcDir(sources.resolve("src/main/kotlin"))
    sourceSets["test"].kotlin.srcDir(sources.resolve("src/test/kotlin"))
}

dependencies {
    // The app provides the natives of its platform, with the same classes.
    compileOnly(libs.onnxruntime)
    testImplementation(libs.onnxruntime)
    testImplementation(libs.junit)
    testRuntimeOnly(libs.junit.launcher)
}

tasks.processResources {
    from(payload.resolve("model.bin")) { into("inversespec/edge/payload") }
}

tasks.test {
    useJUnitPlatform()
    systemProperty("repo", rootDir.resolve("../..").canonicalPath)
    systemProperty("expected", sources.resolve("target/expected.json").path)
}
