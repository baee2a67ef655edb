#!/usr/bin/env bash
# Installs what `make apk` and the Android tests need on Debian or Ubuntu. Needs root; does nothing where all is there.
set -euo pipefail

packages=(aapt android-framework-res apksigner dexdump maven npm openjdk-17-jdk-headless zipalign)
missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
# Another JDK, Maven or npm than Debian's is as good.
command -v mvn >/dev/null && missing=("${missing[@]/#maven/}")
command -v npm >/dev/null && missing=("${missing[@]/#npm/}")
command -v javac >/dev/null && missing=("${missing[@]/#openjdk-17-jdk-headless/}")
read -ra missing <<<"${missing[*]}"
if ((${#missing[@]} == 0)); then exit 0; fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
