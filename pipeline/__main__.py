"""Lists the commands of pipeline/: `python -m pipeline`."""

import pipeline

if __name__ == "__main__":
    print(
        str(pipeline.__doc__).partition("\nAll other code")[0] + "\nEach has --help. Data: python -m data_prep --help."
    )
