# The Android targets, included by the root Makefile: `make apk`, `make apk-test`.

ANDROID := android_demo
ANDROID_BUILD := $(ANDROID)/build
ABIS ?= arm64-v8a,x86_64
# DEBUG=1: a debuggable app that may use plain http in the local network.
DEBUG_FLAG := $(if $(DEBUG),--debug)
MVN := MAVEN_OPTS="$${MAVEN_OPTS:--Xmx900m -XX:+UseSerialGC -XX:TieredStopAtLevel=1}" mvn --batch-mode --quiet --file $(ANDROID)/pom.xml -P app

.PHONY: apk apk-tools apk-resources apk-assets apk-test

apk: apk-resources
	$(MVN) -pl app -am -Dmaven.test.skip package
	$(RUN) -m android_demo.apk package --abis $(ABIS) $(DEBUG_FLAG)

# Fails with the missing Debian packages, if any; $(ANDROID)/setup-debian.sh installs them.
apk-tools: $(VENV)/bin/python
	$(RUN) -m android_demo.apk tools

apk-resources: apk-tools apk-assets $(ANDROID_BUILD)/tools.classpath
	$(RUN) -m android_demo.apk resources $(DEBUG_FLAG)

# The tiny bundle, and its sample payloads: `python -m android_demo.make_samples` makes those, with PyTorch, and is for
# a new pair or format. Python's standard library is enough for an app.
apk-assets: $(VENV)/bin/python
	$(RUN) -m android_demo.samples

$(ANDROID_BUILD)/tools.classpath: $(ANDROID)/tools/pom.xml
	mkdir -p $(@D)
	mvn --batch-mode --quiet --file $< dependency:build-classpath
	touch $@

# Tests of the library on a JVM, of its archive, of the APK, its dex and its screens; screenshots are written to
# $(ANDROID_BUILD)/screenshots.
apk-test: apk aar $(VENV)/dev.stamp
	APK_TESTS=1 AAR_TESTS=1 $(RUN) -m pytest tests/android

# The library as an Android archive in a Maven repository of plain files, $(ANDROID_BUILD)/maven, with its API compared.
# With a sample bundle beside it, $(ANDROID_BUILD)/sample. Python's standard library is enough for both.
.PHONY: aar aar-test
aar: $(VENV)/bin/python
	$(MVN) -P docs -pl edge-runtime,edge-runtime-coroutines -Dmaven.test.skip package
	$(MVN) -P docs -pl edge-runtime dokka:javadoc
	$(RUN) -m android_demo.aar publish
	$(RUN) -m android_demo.aar api
	$(RUN) -m android_demo.sample_bundle

# Consumers that Maven resolves from that repository, compiled and run: with callbacks and with coroutines.
aar-test: aar $(VENV)/dev.stamp
	AAR_TESTS=1 $(RUN) -m pytest tests/android/test_aar.py
