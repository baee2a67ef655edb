# The Android part, included by the Makefile of the root: `make apk`, `make apk-test`.

ANDROID := android_demo
ANDROID_BUILD := $(ANDROID)/build
ABIS ?= arm64-v8a,x86_64
MVN := MAVEN_OPTS="$${MAVEN_OPTS:--Xmx900m -XX:+UseSerialGC -XX:TieredStopAtLevel=1}" mvn --batch-mode --quiet --file $(ANDROID)/pom.xml -P app

.PHONY: apk apk-tools apk-resources apk-assets apk-test

apk: apk-resources
	$(MVN) -pl app -am -Dmaven.test.skip package
	$(RUN) $(ANDROID)/apk.py package --abis $(ABIS)

# Says which Debian packages are missing, if any are; $(ANDROID)/setup-debian.sh installs them.
apk-tools: $(VENV)/cloud.stamp
	$(RUN) $(ANDROID)/apk.py tools

apk-resources: apk-tools apk-assets $(ANDROID_BUILD)/tools.classpath
	$(RUN) $(ANDROID)/apk.py resources

# The tiny bundle and payloads for it; made again where the weights have changed.
apk-assets: $(VENV)/cloud.stamp
	PYTHONPATH=. $(RUN) $(ANDROID)/samples.py

$(ANDROID_BUILD)/tools.classpath: $(ANDROID)/tools/pom.xml
	mkdir -p $(@D)
	mvn --batch-mode --quiet --file $< dependency:build-classpath
	touch $@

# The APK, its dex on a JVM, and its screens; screenshots go to $(ANDROID_BUILD)/screenshots.
apk-test: apk $(VENV)/dev.stamp
	APK_TESTS=1 $(RUN) -m pytest tests/android/test_app.py
